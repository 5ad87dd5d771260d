package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// A meter reads how much this process and the Redis servers have used so far.
type meter struct {
	servers []*redis.Client // the meter's own clients, which no contender uses
	pids    []int
}

func newMeter(servers []*server) *meter {
	m := &meter{}
	for _, s := range servers {
		m.servers = append(m.servers, redis.NewClient(&redis.Options{Addr: s.addr}))
		m.pids = append(m.pids, s.cmd.Process.Pid)
	}
	return m
}

func (m *meter) close() {
	for _, rdb := range m.servers {
		_ = rdb.Close()
	}
}

// usage is what was used up to an instant. The meter's own commands and reads are included: two per server for
// each slice.
type usage struct {
	mallocs   uint64
	clientCPU float64 // in microseconds, like all times here
	redisCPU  float64 // of the threads that run commands; NaN if the system does not report it
	commands  float64 // run by Redis, including those that scripts call
	reads     float64 // from its sockets: approximately the number of round trips
}

// read asks Redis first and this process last. readBack does it in the opposite order, so that the reading itself
// counts for neither of them.
func (m *meter) read(ctx context.Context) (usage, error) {
	u, err := m.redis(ctx)
	u.redisCPU = threadCPU(m.pids)
	return u.withOwn(ownUsage()), err
}

func (m *meter) readBack(ctx context.Context) (usage, error) {
	own, cpu := ownUsage(), threadCPU(m.pids)
	u, err := m.redis(ctx)
	u.redisCPU = cpu
	return u.withOwn(own), err
}

func (u usage) withOwn(own usage) usage {
	u.mallocs, u.clientCPU = own.mallocs, own.clientCPU
	return u
}

// threadCPU returns the CPU time of the main threads of these processes, as the kernel counts it in nanoseconds. Redis
// runs all commands in its main thread. Linux reports the time, but some containers hide it.
func threadCPU(pids []int) float64 {
	sum := 0.0
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/schedstat", pid))
		ran, _, _ := strings.Cut(string(text), " ")
		if err != nil || ran == "0" { // the kernel does not count
			return math.NaN()
		}
		sum += number(ran) / 1e3
	}
	return sum
}

// ownUsage returns the usage of this process.
func ownUsage() usage {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // it fails only for an invalid argument
	}
	return usage{mallocs: mem.Mallocs, clientCPU: microseconds(r.Utime) + microseconds(r.Stime)}
}

// since returns what was used since the earlier reading.
func (u usage) since(earlier usage) usage {
	return usage{
		mallocs: u.mallocs - earlier.mallocs, clientCPU: u.clientCPU - earlier.clientCPU,
		redisCPU: u.redisCPU - earlier.redisCPU, commands: u.commands - earlier.commands, reads: u.reads - earlier.reads,
	}
}

func microseconds(t syscall.Timeval) float64 { return float64(t.Sec)*1e6 + float64(t.Usec) }

func (m *meter) redis(ctx context.Context) (usage, error) {
	var u usage
	for _, rdb := range m.servers {
		if err := addUsage(ctx, rdb, &u); err != nil {
			return u, err
		}
	}
	return u, nil
}

// addUsage adds what one server has used so far.
func addUsage(ctx context.Context, rdb *redis.Client, u *usage) error {
	for _, section := range []string{"stats", "commandstats"} {
		info, err := infoOf(ctx, rdb, section)
		if err != nil {
			return err
		}
		for name, value := range info {
			switch {
			case name == "total_reads_processed":
				u.reads += number(value)
			case strings.HasPrefix(name, "cmdstat_"):
				calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
				u.commands += number(calls)
			}
		}
	}
	return nil
}

func number(s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(err) // Redis and the kernel write nothing but numbers here
	}
	return f
}

// infoOf returns a section of INFO as a map of its fields.
func infoOf(ctx context.Context, rdb *redis.Client, section string) (map[string]string, error) {
	text, err := rdb.Info(ctx, section).Result()
	if err != nil {
		return nil, fmt.Errorf("INFO %s: %w", section, err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}
