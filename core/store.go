package core

import "context"

// A store keeps the state of a Limiter's keys. Its methods are atomic for each
// key, and the store's own clock decides.
type store interface {
	// read decides on n units and writes what it found to into, one reading for each
	// limit; if all of them admit and charge is set, it charges n.
	read(ctx context.Context, key string, n int64, charge bool, into []reading) error
	// refund gives n units back that were charged on top of the readings.
	refund(ctx context.Context, key string, n int64, readings []reading) error
	// reset forgets key.
	reset(ctx context.Context, key string) error
	// source returns who decides.
	source() Source
}
