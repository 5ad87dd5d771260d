package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A counted is a redis-server whose instructions are counted by callgrind.
type counted struct {
	*redis.Client

	dir     string
	process *exec.Cmd
	dumps   int // how often callgrind has written its counts
}

func start(ctx context.Context) (*counted, error) {
	dir, err := os.MkdirTemp("", "luaprice")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "socket")
	// hz 1 keeps the background work of Redis small, because its instructions are counted, too.
	process := exec.Command("valgrind", "--tool=callgrind", "--vgdb-prefix="+dir+"/vgdb", "--callgrind-out-file="+dir+"/counts",
		"redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--hz", "1", "--dynamic-hz", "no", "--activerehashing", "no",
		"--dir", dir)
	if err := process.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &counted{dir: dir, process: process, Client: redis.NewClient(&redis.Options{
		Network: "unix", Addr: socket, ReadTimeout: time.Minute, PoolSize: 1, MaxRetries: -1, DisableIdentity: true,
	})}
	for range 300 {
		if _, err = os.Stat(socket); err == nil {
			if err = s.Ping(ctx).Err(); err == nil {
				return s, nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.stop()
	return nil, err
}

func (s *counted) stop() {
	_ = s.Close()
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	_ = os.RemoveAll(s.dir)
}

// since returns the instructions that were executed since the previous call of since.
func (s *counted) since() (int64, error) {
	command := exec.Command("vgdb", "--vgdb-prefix="+s.dir+"/vgdb", "--pid="+strconv.Itoa(s.process.Process.Pid), "dump")
	if out, err := command.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("vgdb: %w: %s", err, out)
	}
	s.dumps++
	file, err := os.Open(fmt.Sprintf("%s/counts.%d", s.dir, s.dumps))
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if count, ok := strings.CutPrefix(lines.Text(), "summary: "); ok {
			return strconv.ParseInt(count, 10, 64)
		}
	}
	return 0, errors.New("callgrind has written no summary")
}
