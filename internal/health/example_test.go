package health_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/health"
)

// A mailer sends mail, unless its server is away.
type mailer struct{ away atomic.Bool }

var errAway = errors.New("no route to host")

func (m *mailer) send(context.Context) error {
	if m.away.Load() {
		return errAway
	}
	return nil
}

// Probe checks that a mail could be sent.
func (m *mailer) Probe(ctx context.Context, _ error) (health.Outcome, error) {
	if err := m.send(ctx); err != nil {
		return health.Unavailable, err
	}
	return health.Answered, nil
}

// Address returns the name of the mailer's server.
func (*mailer) Address(context.Context, error) string { return "mail:25" }

// The Monitor of a mail server. Before each request, Await says whether to make it. After each
// request, Failed or Answered records how it ended.
func Example() {
	const timeout = time.Second
	mail, changes := &mailer{}, make(chan string, 1)

	// Without a Subscription, the server would not be watched.
	listeners, listener := &health.Listeners{}, health.Listener(func(_ context.Context, c health.Change) {
		switch c.Event {
		case health.WentDown:
			changes <- fmt.Sprintf("%s is down: %v", c.Address, c.Cause)
		case health.CameBack, health.TakenOver:
			changes <- c.Address + " is back"
		case health.StillDown: // is for the log alone
		}
	})
	subscription := listeners.Subscribe(&listener)
	monitor := health.NewMonitor(health.Config{Timeout: timeout, PoolSize: 1, Prober: mail, Listeners: listeners})
	defer monitor.Refresh() // stops probing after the last Close
	defer subscription.Close()

	send := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if !monitor.Await(ctx, nil) {
			return health.ErrDown
		}
		began := time.Now()
		err := mail.send(ctx)
		if err != nil {
			monitor.Failed(health.Unavailable, began, timeout, err) // a real client tells the outcomes apart
		} else {
			monitor.Answered(began, true)
		}
		return err
	}

	fmt.Println("sent:", send())
	mail.away.Store(true)
	fmt.Println("sent:", send())
	fmt.Println(<-changes)
	fmt.Println("sent:", send()) // fails at once
	mail.away.Store(false)
	fmt.Println(<-changes) // a probe was answered
	fmt.Println("sent:", send())
	// Output:
	// sent: <nil>
	// sent: no route to host
	// mail:25 is down: no route to host
	// sent: circuit breaker open
	// mail:25 is back
	// sent: <nil>
}
