// Package login is a handler for logins that limits how often a password can be guessed. Copy it, and change what differs in your
// service: the names of the fields, how account names are normalized, and the numbers.
//
// A failed attempt counts against two limits at once: one for the account, over all addresses, and one for the address, over all
// accounts. The handler reserves a unit of both before it checks the password, and charges the units unless the password is right. So
// attempts that run at the same time cannot exceed the limits, and an attempt counts even if its client leaves or the user store fails.
//
// A limit for an account has a drawback: anyone who knows the name of an account can use up the limit, and so lock out its owner. Therefore a
// device on which the owner has logged in before gets a signed cookie, and with it a limit of its own, which nobody else can use up. For
// the same reason there is no [core.Ban] by account. The cookie stays valid when the password changes, so somebody who once knew the
// password can go on guessing from a known device. A limit over all known devices of the account bounds that.
//
// Attempts with the right password are not counted, however many there are. To bound the work of checking passwords, mount an ordinary
// limit by address in front of the handler.
package login

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// These limits say how many failed attempts are allowed.
var (
	// perAccount limits an account, over all devices that are not known.
	perAccount = []core.Option{core.SlidingWindowLog(core.Per(10, 15*time.Minute)), core.SlidingWindowLog(core.PerDay(100))}
	// perDevice limits a known device of an account.
	perDevice = []core.Option{core.SlidingWindowLog(core.Per(10, 15*time.Minute))}
	// perOwner limits all known devices of an account together.
	perOwner = []core.Option{core.SlidingWindowLog(core.PerDay(100))}
	// perAddress limits an address, over all devices that are not known. Many users may share an address, and an attempt holds a unit while
	// its password is checked: so the burst has room for 256 logins at the same moment beside 44 failures. An attacker can fail 300 times
	// at once, over all accounts, and then 60 times in 15 minutes.
	perAddress = []core.Option{core.TokenBucket(core.Per(60, 15*time.Minute), core.Burst(300))}
)

// Users is your user store.
type Users interface {
	// Check reports whether the password of an account is right. Its argument is the name by which the account was counted, and Check must
	// look for exactly this name: if it accepted "álice" for "alice", as some databases do, an attacker would have a limit for each
	// spelling. Check must take as long for an account that does not exist. Its errors are logged, so they must not contain the password.
	Check(ctx context.Context, account, password string) (bool, error)
}

// Config is what a Handler needs. All fields are required.
type Config struct {
	// NewLimiter makes the limiters: core.New with your client, or core.NewMemory.
	NewLimiter func(name string, opts ...core.Option) (*core.Limiter, error)
	// Address returns the key of a client's address, such as keyfunc.IP(). Behind a proxy, use
	// keyfunc.IP(keyfunc.TrustedProxies(...)): otherwise all users share one limit. If your users come by IPv6, consider the option
	// keyfunc.IPv6Prefix(48): many customers of providers can use all 65,536 networks of a /48, and each would have a limit.
	Address keyfunc.Func
	// Secret signs the cookies of known devices: at least 32 random bytes, the same in all processes. Anyone who knows the secret can make
	// cookies, and so guess without a limit.
	Secret []byte
	Users  Users
	// LoggedIn answers a request whose password was right: it starts the session.
	LoggedIn func(w http.ResponseWriter, r *http.Request, account string)
}

// A Handler answers logins. Mount it for POST only:
//
//	mux.Handle("POST /login", handler)
type Handler struct {
	accounts, devices, owners, addresses *core.Limiter

	address  keyfunc.Func
	users    Users
	loggedIn func(w http.ResponseWriter, r *http.Request, account string)
	known    knownDevices
	limit    *httplimit.Answerer
}

// New returns a Handler.
func New(c Config) (*Handler, error) {
	switch {
	case c.NewLimiter == nil || c.Address == nil || c.Users == nil || c.LoggedIn == nil:
		return nil, errors.New("login: a field of Config is missing")
	case len(c.Secret) < 32:
		return nil, errors.New("login: Config.Secret is shorter than 32 bytes")
	}
	h := &Handler{
		address: c.Address, users: c.Users, loggedIn: c.LoggedIn,
		known: knownDevices{secret: c.Secret, now: time.Now},
		limit: httplimit.NewAnswerer(guard.HeadersOnDenial()), // clients need not see how many failures an account has left
	}
	var errs [4]error
	// While Redis does not answer, nobody can log in: otherwise attackers could guess without limits during an outage.
	h.accounts, errs[0] = c.NewLimiter("login-account", append(perAccount, core.FailClosed())...)
	h.devices, errs[1] = c.NewLimiter("login-device", append(perDevice, core.FailClosed())...)
	h.owners, errs[2] = c.NewLimiter("login-owner", append(perOwner, core.FailClosed())...)
	h.addresses, errs[3] = c.NewLimiter("login-address", append(perAddress, core.FailClosed())...)
	return h, errors.Join(errs[:]...)
}

// ServeHTTP reads the body once, so that the account that is counted is always the account that is checked.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	given, status := readCredentials(w, r)
	if status != 0 {
		http.Error(w, http.StatusText(status), status)
		return
	}
	held, decision, err := h.reserve(r, given.account)
	if h.limit.Answer(w, r, decision, err) {
		return
	}
	right, err := h.check(r, held, given)
	switch {
	case r.Context().Err() != nil: // the client has left
		w.WriteHeader(499) // as nginx logs it; otherwise a failed guess would look like a success in logs
	case err != nil:
		slog.ErrorContext(r.Context(), "a login could not be checked", "error", err)
		http.Error(w, "try again later", http.StatusInternalServerError)
	case !right: // or no account has this name, which the answer must not reveal
		http.Error(w, "wrong name or password", http.StatusUnauthorized)
	default:
		http.SetCookie(w, h.known.cookie(given.account))
		h.loggedIn(w, r, given.account)
	}
}

// reserve reserves a unit for a failure in each limit that counts it, and returns what it holds, together with the last decision. If a
// limit denies, nothing is held. A known device has a limit of its own, beside the one over all known devices of the account. All other
// devices share the limit of the account and the limit of their address.
//
// The address decides before the account, so that an address which has used up its limit holds no units of an account. With
// [core.ReserveAll], the account would decide first, because its limit is smaller: many attempts at once from such an address would
// hold all units of the account for a moment, again and again, and so lock out its owner.
func (h *Handler) reserve(r *http.Request, account string) (held []*core.Reservation, decision *core.Reservation, err error) {
	owner := keyfunc.ForUser(account)
	if device, ok := h.known.device(r, account); ok {
		decision, err = core.ReserveAll(r.Context(), 1, h.devices.On(keyfunc.ForJoin(owner, device)), h.owners.On(owner))
		return []*core.Reservation{decision}, decision, err
	}
	address, err := h.address(httplimit.Request(r))
	if err != nil {
		return nil, nil, err
	}
	decision, err = h.addresses.Reserve(r.Context(), address, 1)
	if err != nil || !decision.Allowed {
		return nil, decision, err
	}
	held = append(held, decision)
	decision, err = h.accounts.Reserve(r.Context(), owner, 1)
	if err != nil || !decision.Allowed {
		_ = held[0].Cancel(r.Context()) // if it fails, the reserved unit is charged when it expires
		return nil, decision, err
	}
	return append(held, decision), decision, nil
}

// check reports whether the password is right, and settles the attempt. Everything except a proven success is settled as a failure: a wrong
// password, an error or a panic of the user store, and a client that has left. Otherwise clients could guess free of charge by leaving.
func (h *Handler) check(r *http.Request, held []*core.Reservation, given credentials) (right bool, err error) {
	failures := int64(1)
	defer func() {
		for _, one := range held {
			_ = one.Settle(r.Context(), failures) // if it fails, the reserved unit is charged when it expires
		}
	}()
	right, err = h.users.Check(r.Context(), given.account, given.password)
	if err == nil {
		err = r.Context().Err()
	}
	if right = right && err == nil; right {
		failures = 0
	}
	return right, err
}

// Unlock gives an account its full limit back, for your support desk. A device on which the owner has logged in before keeps its own limit: if
// that limit is used up, the owner can log in without the cookie, as in a private window.
func (h *Handler) Unlock(ctx context.Context, name string) error {
	account, ok := accountOf(name)
	if !ok {
		return errors.New("login: no account has this name")
	}
	return h.accounts.Reset(ctx, keyfunc.ForUser(account))
}

// Close ends the background work of the limiters.
func (h *Handler) Close() error {
	return errors.Join(h.accounts.Close(), h.devices.Close(), h.owners.Close(), h.addresses.Close())
}
