// Package contracts limits each customer by a limit of their own, which may change while the service runs. Copy it, and adapt it to your
// service: where the contracts are read, and how often.
//
// The contracts are a Redis hash, with the customer's identifier as the field and a limit as the value:
//
//	HSET contracts acme "token_bucket 250/1m name=requests" initech "token_bucket 1000/1m burst=2000 name=requests"
//
// A customer without a limit has the text "unlimited". A customer who may do nothing for now has "token_bucket 0/1m name=requests".
//
// The whole hash is read once per minute, in the background. So no request waits for it, and nothing that a client sends causes a look-up,
// a log line or an entry in memory. While Redis does not answer, customers keep the limits that this process has read last. A customer
// whose text is wrong keeps the last limit that was right.
//
// Give all limits the same name: see [core.LimitName]. The units that a customer has used then stay used when the numbers change.
package contracts

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

const (
	// Key is the key of the hash.
	Key = "contracts"
	// every is how often the contracts are read: a change takes effect after at most a minute.
	every = time.Minute
	// timeout bounds how long reading takes.
	timeout = 10 * time.Second
	// most is how many contracts are allowed. A limiter remembers 100,000 different numbers; see [core.Limiter.With].
	most = 100_000
)

// Contracts holds the limits of all customers. It is safe for concurrent use.
type Contracts struct {
	rdb    redis.UniversalClient
	logger *slog.Logger
	limits atomic.Pointer[map[string]core.Limit] // by customer; a map is never changed
}

// New reads the contracts, and reads them again each minute until ctx ends. If they cannot be read now, all customers have the limits of
// the limiter until they can.
func New(ctx context.Context, rdb redis.UniversalClient, logger *slog.Logger) *Contracts {
	c := &Contracts{rdb: rdb, logger: logger}
	c.limits.Store(&map[string]core.Limit{})
	c.read(ctx)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.read(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
	return c
}

// Limiter returns lim with the limit of a customer, or lim itself for a customer without a contract. The customer must be one that you
// have authenticated, or to whom an API key was issued: never a text that a client wrote.
func (c *Contracts) Limiter(lim *core.Limiter, customer string) (*core.Limiter, error) {
	limit, ok := (*c.limits.Load())[customer]
	if !ok {
		return lim, nil
	}
	return lim.With(limit)
}

// read replaces the contracts. Mistakes are logged in one line, which contains no customer and no credential.
func (c *Contracts) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	texts, err := c.rdb.HGetAll(ctx, Key).Result()
	if err == nil && len(texts) > most {
		err = fmt.Errorf("there are %d contracts: allowed are %d", len(texts), most)
	}
	if err != nil {
		c.logger.ErrorContext(ctx, "the contracts stay as they were", "error", err)
		return
	}
	before, now := *c.limits.Load(), make(map[string]core.Limit, len(texts))
	wrong, firstError := 0, error(nil)
	for customer, text := range texts {
		limit, err := core.ParseLimit(text)
		if err != nil {
			if wrong++; firstError == nil {
				firstError = err
			}
			last, known := before[customer]
			if !known {
				continue
			}
			limit = last
		}
		now[customer] = limit
	}
	c.limits.Store(&now)
	if wrong > 0 {
		c.logger.ErrorContext(ctx, "some contracts are wrong, and stay as they were", "contracts", wrong, "first error", firstError)
	}
}
