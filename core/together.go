package core

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// readTogether decides on all of ds in one script. Nothing is undone where the
// reply is lost; where the server refuses the script as a whole, each is to be
// asked alone.
func (s *redisStore) readTogether(ctx context.Context, ds []*decision) error {
	args := make([]any, scriptArgs, scriptArgs+len(s.constants)+len(ds)*(1+2*len(s.tails)))
	alike := true
	for _, d := range ds {
		args = s.keys(args, d.key)
		alike = alike && d.n == ds[0].n && d.charge == ds[0].charge
	}
	args = append(args, s.constants...)
	for _, d := range ds {
		args = s.cost(args, d.n, d.charge)
		if alike {
			break
		}
	}
	reply, err := s.decide.run(ctx, s, args, len(ds)*len(s.tails))
	switch {
	case err == nil:
		return s.decodeAll(reply, ds)
	case refused(err):
		if redis.HasErrorPrefix(err, "CROSSSLOT") {
			s.apart.Store(true)
		}
		for _, d := range ds {
			d.err = errAlone
		}
		return nil
	}
	return err
}

// refused tells whether the server has run nothing, because of one of the keys.
func refused(err error) bool {
	return redis.HasErrorPrefix(err, "CROSSSLOT") || redis.HasErrorPrefix(err, "NOPERM")
}

// failed stands in a reply for a decision that failed, and charged nothing.
const failed = 2

func (s *redisStore) decodeAll(reply []int64, ds []*decision) error {
	size := readingLen * len(s.deciders)
	if len(reply) != size*len(ds) {
		return unexpected(len(reply), size*len(ds))
	}
	for i, d := range ds {
		part := reply[i*size : (i+1)*size]
		if part[0] == failed {
			d.err = errAlone
		} else {
			d.err = decodeReply(part, s.deciders, d.into)
		}
	}
	return nil
}

// readEach decides on each of ds in a script of its own, all in one pipeline to
// the server that has them. Its error is that of a flight on which none arrived.
func (s *redisStore) readEach(ctx context.Context, cluster *redis.ClusterClient, ds []*decision) error {
	pipe := cluster.Pipeline()
	cmds := make([]onceCmd, len(ds))
	for i, d := range ds {
		cmds[i] = s.decide.command(ctx, s.args(d.key, d.n, d.charge), len(s.tails))
		_ = pipe.Process(ctx, cmds[i]) // it only notes the command
	}
	_, err := pipe.Exec(ctx)
	for i, d := range ds {
		switch cmd := cmds[i]; {
		case cmd.Err() == nil:
			d.err = decodeReply(cmd.Val(), s.deciders, d.into)
			err = nil
		case redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT"):
			d.err = errAlone
			err = nil
		default:
			d.err = cmd.Err()
		}
	}
	return err
}
