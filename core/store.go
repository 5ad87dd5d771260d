package core

import "context"

// A store keeps the state of a Limiter's keys. Its methods are atomic for each
// key, and the store's own clock decides.
type store interface {
	// read decides on n units and returns what it found, one reading for each limit;
	// if all of them admit and charge is set, it charges n.
	read(ctx context.Context, key string, n int64, charge bool) ([]reading, error)
	// refund gives n units back, charged under the marks, one for each limit.
	refund(ctx context.Context, key string, n int64, marks []int64) error
	// reset forgets key.
	reset(ctx context.Context, key string) error
	// source returns who decides.
	source() Source
}
