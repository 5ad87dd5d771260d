package login

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
	"github.com/redislimit/redislimit/keyfunc"
)

const (
	patience   = time.Minute // how long the test waits on a busy machine
	guesses    = 10          // how many failed attempts at an account are allowed at once
	attackers  = 256         // how many connections attack
	rightWord  = "correct horse battery staple"
	formType   = "application/x-www-form-urlencoded"
	jsonType   = "application/json"
	theAccount = "alice@example.com"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // outages and errors are intended
	os.Exit(m.Run())
}

// fakeUsers is a user store in which every account exists and has the same password.
type fakeUsers struct {
	checks sync.Map                                        // account -> *atomic.Int64: how often its password was checked
	takes  time.Duration                                   // how long a check takes
	before func(ctx context.Context, account string) error // if not nil, is called first
}

func (u *fakeUsers) Check(ctx context.Context, account, password string) (bool, error) {
	u.of(account).Add(1)
	if u.before != nil {
		if err := u.before(ctx, account); err != nil {
			return false, err
		}
	}
	if u.takes > 0 {
		select {
		case <-time.After(u.takes):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return password == rightWord, nil
}

func (u *fakeUsers) of(account string) *atomic.Int64 {
	n, _ := u.checks.LoadOrStore(account, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// A service serves a Handler behind a trusted proxy, which says what the addresses of the clients are.
type service struct {
	*testing.T

	handler *Handler
	users   *fakeUsers
	client  *http.Client
	url     string
}

// stores returns the constructors of limiters in memory and in Redis, by name.
func stores(t *testing.T) map[string]func(name string, opts ...core.Option) (*core.Limiter, error) {
	t.Helper()
	client := clientOf(t, redistest.Server(t).Addr)
	return map[string]func(name string, opts ...core.Option) (*core.Limiter, error){
		"Memory": core.NewMemory,
		"Redis": func(name string, opts ...core.Option) (*core.Limiter, error) {
			return core.New(client, name, append(opts, core.Timeout(patience))...)
		},
	}
}

func clientOf(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: patience, WriteTimeout: patience, DialTimeout: patience, PoolTimeout: patience,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// onEach runs a test with the limits in each store. The stores are empty before the test.
func onEach(t *testing.T, run func(s *service)) {
	t.Helper()
	for name, newLimiter := range stores(t) {
		t.Run(name, func(t *testing.T) { run(serve(t, newLimiter)) })
	}
}

func serve(t *testing.T, newLimiter func(name string, opts ...core.Option) (*core.Limiter, error)) *service {
	t.Helper()
	s := &service{T: t, users: &fakeUsers{}}
	var err error
	s.handler, err = New(Config{
		NewLimiter: newLimiter, Address: keyfunc.IP(keyfunc.TrustedProxies("127.0.0.1")), Secret: bytes.Repeat([]byte{7}, 32), Users: s.users,
		LoggedIn: func(w http.ResponseWriter, _ *http.Request, account string) {
			_, _ = io.WriteString(w, "hello "+account)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.handler.Close() })
	mux := http.NewServeMux()
	mux.Handle("POST /login", s.handler)
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // panics are intended
	server.Start()
	t.Cleanup(server.Close)
	s.client, s.url = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}, server.URL+"/login"
	return s
}

// An attempt is a request to log in.
type attempt struct {
	user, password string
	from           string // the address; the default is 203.0.113.1
	cookie         *http.Cookie
	body, media    string // replace the form with user and password, if media is not empty
}

// try sends an attempt, and returns the status, the body and the cookie.
func (s *service) try(a attempt) (status int, body string, cookie *http.Cookie) {
	s.Helper()
	status, body, cookie, err := s.send(s.Context(), a)
	if err != nil {
		s.Errorf("the request failed: %v", err)
	}
	return status, body, cookie
}

func (s *service) send(ctx context.Context, a attempt) (status int, body string, cookie *http.Cookie, err error) {
	if a.media == "" {
		a.body, a.media = url.Values{"user": {a.user}, "password": {a.password}}.Encode(), formType
	}
	if a.from == "" {
		a.from = "203.0.113.1"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(a.body))
	if err != nil {
		return 0, "", nil, err
	}
	r.Header.Set("Content-Type", a.media)
	r.Header.Set("X-Forwarded-For", a.from)
	if a.cookie != nil {
		r.AddCookie(a.cookie)
	}
	response, err := s.client.Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	for _, c := range response.Cookies() {
		if strings.HasPrefix(c.Name, cookiePrefix) {
			cookie = c
		}
	}
	return response.StatusCode, string(text), cookie, err
}

// want sends an attempt, and checks the status. A cookie must come with a success, and only then.
func (s *service) want(status int, a attempt) (cookie *http.Cookie) {
	s.Helper()
	got, body, cookie := s.try(a)
	if got != status {
		s.Errorf("user %q, password %q: got status %d and the body %q, want %d", a.user, a.password, got, body, status)
	}
	if (cookie != nil) != (got == http.StatusOK) {
		s.Errorf("got status %d and the cookie %v, want a cookie only with 200", got, cookie)
	}
	return cookie
}

// attack makes 256 attempts at once, each from an address of its own unless the attempt has an address.
func (s *service) attack(each func(i int) (ctx context.Context, a attempt)) (statuses map[int]int) {
	s.Helper()
	var mu sync.Mutex
	statuses = map[int]int{}
	var all sync.WaitGroup
	for i := range attackers {
		all.Go(func() {
			ctx, a := each(i)
			if a.from == "" {
				a.from = fmt.Sprintf("198.51.100.%d", i)
			}
			status, _, _, _ := s.send(ctx, a) // a client that leaves gets no answer
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	all.Wait()
	return statuses
}

// spelling returns one of the spellings of an account's name.
func spelling(i int) string {
	return []string{theAccount, "Alice@Example.com", "  alice@example.com\n", "ALICE@EXAMPLE.COM", "alice@example.\u212aom"}[i%4]
}

// TestGuesses makes 256 connections guess at one account, from as many addresses, in all spellings, as JSON and as forms. No more passwords may
// be checked than the limit allows. After that, even the right password must be denied.
func TestGuesses(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *service) {
		s.users.takes = 20 * time.Millisecond
		statuses := s.attack(func(i int) (context.Context, attempt) {
			a := attempt{user: spelling(i), password: fmt.Sprint("guess ", i)}
			if i%2 == 0 {
				a.body, a.media = fmt.Sprintf(`{"user": %q, "password": %q}`, a.user, a.password), jsonType
			}
			return s.Context(), a
		})
		if n := s.users.of(theAccount).Load(); n != guesses || statuses[http.StatusUnauthorized] != guesses || statuses[http.StatusTooManyRequests] != attackers-guesses {
			s.Errorf("%d passwords were checked, want %d; the statuses are %v", n, guesses, statuses)
		}
		s.want(http.StatusTooManyRequests, attempt{user: theAccount, password: rightWord})
		s.want(http.StatusOK, attempt{user: "bob", password: rightWord})
		if err := s.handler.Unlock(s.Context(), " Alice@example.com"); err != nil {
			s.Errorf("Unlock: got error %v, want none", err)
		}
		s.want(http.StatusOK, attempt{user: theAccount, password: rightWord})
	})
}

// TestLeavers attacks with clients that leave before or while their password is checked. Their guesses must count all the same.
func TestLeavers(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *service) {
		s.users.takes = 30 * time.Millisecond
		// On a busy machine it takes longer until a password is checked: clients leave later in each round.
		for round := 1; round <= 4 || round < 50 && s.users.of(theAccount).Load() == 0; round++ {
			s.attack(func(i int) (context.Context, attempt) {
				ctx, leave := context.WithTimeout(s.Context(), time.Duration(i*round)*time.Millisecond/4) // within 64 ms in the first round
				s.Cleanup(leave)
				return ctx, attempt{user: theAccount, password: fmt.Sprint("guess ", i)}
			})
		}
		s.client.CloseIdleConnections()
		if n := s.users.of(theAccount).Load(); n > guesses || n == 0 {
			s.Errorf("%d passwords were checked, want 1 to %d", n, guesses)
		}
	})
}

// TestOutage makes Redis fail during an attack: nobody may guess without Redis, and an outage must not allow more guesses later.
func TestOutage(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, redistest.Server(t).Addr)
	client := clientOf(t, proxy.Addr())
	s := serve(t, func(name string, opts ...core.Option) (*core.Limiter, error) {
		return core.New(client, name, append(opts, core.Timeout(200*time.Millisecond))...)
	})
	s.users.takes = 5 * time.Millisecond
	guess := func(i int) (context.Context, attempt) {
		return s.Context(), attempt{user: theAccount, password: fmt.Sprint("guess ", i)}
	}
	for range 3 {
		s.want(http.StatusUnauthorized, attempt{user: theAccount, password: "guess"})
	}
	for _, fault := range []func(){proxy.Refuse, proxy.Silence, proxy.Reset, func() { proxy.DropReply() }} {
		fault()
		before := s.users.of(theAccount).Load()
		statuses := s.attack(guess)
		if n := s.users.of(theAccount).Load(); n != before {
			s.Errorf("%d passwords were checked in an outage, want none", n-before)
		}
		if statuses[http.StatusServiceUnavailable]+statuses[http.StatusTooManyRequests] != attackers {
			s.Errorf("got the statuses %v, want only 503 and 429", statuses)
		}
		proxy.Pass()
		status := 0
		for began := time.Now(); status != http.StatusUnauthorized && status != http.StatusTooManyRequests && time.Since(began) < patience; {
			status, _, _ = s.try(attempt{user: theAccount, password: "guess"})
		}
	}
	s.attack(guess)
	if n := s.users.of(theAccount).Load(); n > guesses {
		s.Errorf("%d passwords were checked, want at most %d", n, guesses)
	}
}

// TestKnownDevice lets the owner log in while others guess at the account, also from the owner's address. The login must succeed on a device
// with the cookie of an earlier login, and on no other device. The number of guesses on the known device must be limited, too.
func TestKnownDevice(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *service) {
		cookie := s.want(http.StatusOK, attempt{user: theAccount, password: rightWord})
		others := s.want(http.StatusOK, attempt{user: "mallory", password: rightWord})
		s.attack(func(i int) (context.Context, attempt) {
			a := attempt{user: theAccount, password: "guess", cookie: others}
			if i%2 == 0 {
				a.from = "203.0.113.1"
			}
			return s.Context(), a
		})
		for i := range 40 { // uses up the limit of the address, too
			s.attackOnce(attempt{user: fmt.Sprint("victim", i), password: "guess"}, 10)
		}
		s.want(http.StatusTooManyRequests, attempt{user: "honest", password: rightWord})
		s.want(http.StatusTooManyRequests, attempt{user: theAccount, password: rightWord})
		s.want(http.StatusTooManyRequests, attempt{user: theAccount, password: rightWord, cookie: others})
		for range 3 {
			s.want(http.StatusOK, attempt{user: "ALICE@example.com", password: rightWord, cookie: cookie})
		}
		for range guesses {
			s.want(http.StatusUnauthorized, attempt{user: theAccount, password: "guess", cookie: cookie})
		}
		s.want(http.StatusTooManyRequests, attempt{user: theAccount, password: rightWord, cookie: cookie})
	})
}

// TestUsedUpAddress guesses at an account from an address that has used up its own limit. None of these attempts may hold a unit of the
// account: many at once would otherwise lock out the owner without spending a guess.
func TestUsedUpAddress(t *testing.T) {
	t.Parallel()
	for name, newLimiter := range stores(t) {
		t.Run(name, func(t *testing.T) {
			var decisions atomic.Int64
			count := core.Observe(func(_ context.Context, e core.Event) {
				if e.Kind == core.EventDecision {
					decisions.Add(1)
				}
			})
			s := serve(t, func(name string, opts ...core.Option) (*core.Limiter, error) {
				if name == "login-account" {
					opts = append(opts, count)
				}
				return newLimiter(name, opts...)
			})
			from := "203.0.113.1"
			for i := range 30 {
				s.attackOnce(attempt{user: fmt.Sprint("victim", i), password: "guess", from: from}, guesses)
			}
			if n := decisions.Swap(0); n < 300 {
				t.Fatalf("%d decisions about accounts, want one for each of 300 guesses", n)
			}
			for range 20 {
				s.want(http.StatusTooManyRequests, attempt{user: theAccount, password: rightWord, from: from})
			}
			if n := decisions.Load(); n > 0 {
				t.Errorf("%d decisions about the account after the address has used up its limit, want none", n)
			}
			s.want(http.StatusOK, attempt{user: theAccount, password: rightWord, from: "203.0.113.2"})
		})
	}
}

// TestUsedUpAccount tries to log in to an account that has used up its limit, from another address: these attempts cost the address
// nothing. So its other users can log in.
func TestUsedUpAccount(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *service) {
		s.attackOnce(attempt{user: theAccount, password: "guess", from: "203.0.113.1"}, guesses)
		for range guesses {
			s.want(http.StatusTooManyRequests, attempt{user: theAccount, password: rightWord, from: "203.0.113.2"})
		}
		s.wantFailed(s.handler.addresses, "ip:203.0.113.2", 0)
	})
}

// TestManyDevices guesses from many devices on which somebody who knew the password has logged in: together they have 100 guesses a day.
func TestManyDevices(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *service) {
		var cookies []*http.Cookie
		for range 12 {
			cookies = append(cookies, s.want(http.StatusOK, attempt{user: theAccount, password: rightWord}))
		}
		before := s.users.of(theAccount).Load()
		for _, cookie := range cookies {
			s.attackOnce(attempt{user: theAccount, password: "guess", cookie: cookie}, guesses)
		}
		if n := s.users.of(theAccount).Load() - before; n != 100 {
			s.Errorf("%d of 120 guesses on known devices were checked, want 100", n)
		}
	})
}

// attackOnce sends an attempt n times, one after the other.
func (s *service) attackOnce(a attempt, n int) {
	s.Helper()
	for range n {
		s.try(a)
	}
}

// TestCookie checks that a cookie is valid for its account only, and not after a change or after it has expired.
func TestCookie(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	k := knownDevices{secret: bytes.Repeat([]byte{7}, 32), now: func() time.Time { return now }}
	known := func(cookie *http.Cookie, account string) bool {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login", http.NoBody)
		r.Header.Set("Cookie", cookie.Name+"="+cookie.Value) // unchanged, even if a cookie cannot have the value
		_, ok := k.device(r, account)
		return ok
	}
	cookie := k.cookie("alice")
	if !known(cookie, "alice") || known(cookie, "alicia") || known(cookie, "") {
		t.Error("the cookie of alice is not valid for alice, or valid for another account")
	}
	if cookie.Value == k.cookie("alice").Value {
		t.Error("two devices have the same cookie")
	}
	bob := k.cookie("bob")
	if known(&http.Cookie{Name: k.cookieName("bob"), Value: cookie.Value}, "bob") || !known(bob, "bob") {
		t.Error("the cookie of alice is valid for bob under the right name, or bob's own cookie is not")
	}
	if bob.Name == cookie.Name || strings.Contains(bob.Name, "bob") {
		t.Errorf("the cookies have the names %s and %s, want different names that do not contain the account", cookie.Name, bob.Name)
	}
	if !cookie.Secure || !cookie.HttpOnly || cookie.Path != "/" || cookie.Domain != "" {
		t.Errorf("got the cookie %v, want one that is Secure and HttpOnly, with the path / and no domain", cookie)
	}
	parts := strings.Split(cookie.Value, ".")
	for name, value := range map[string]string{
		"another device":     "A" + cookie.Value,
		"a later expiry":     parts[0] + ".9" + parts[1] + "." + parts[2],
		"another signature":  cookie.Value[:len(cookie.Value)-2] + "AA",
		"no signature":       parts[0] + "." + parts[1] + ".",
		"two parts":          parts[0] + "." + parts[1],
		"four parts":         cookie.Value + ".",
		"nothing":            "",
		"parts in one":       parts[0] + parts[1] + ".." + parts[2],
		"another secret":     knownDevices{secret: bytes.Repeat([]byte{8}, 32), now: k.now}.cookie("alice").Value,
		"no number":          parts[0] + ".soon." + k.sign("alice", parts[0], "soon"),
		"a number too large": parts[0] + ".9999999999999999999999." + k.sign("alice", parts[0], "9999999999999999999999"),
	} {
		if known(&http.Cookie{Name: cookie.Name, Value: value}, "alice") {
			t.Errorf("%s: %q is valid, want it refused", name, value)
		}
	}
	// Someone who may choose the name of an account must not get a cookie for another account in this way.
	chosen := k.cookie("4102444800 alice")
	parts = strings.Split(chosen.Value, ".")
	for _, value := range []string{
		parts[0] + " " + parts[1] + ".4102444800." + parts[2],
		parts[0] + `" "` + parts[1] + ".4102444800." + parts[2],
	} {
		if known(&http.Cookie{Name: cookie.Name, Value: value}, "alice") {
			t.Errorf("%q is valid for another account, want it refused", value)
		}
	}
	now = now.Add(knownFor - time.Second)
	if !known(cookie, "alice") {
		t.Error("the cookie has expired a second before its time")
	}
	if now = now.Add(time.Second); known(cookie, "alice") {
		t.Error("the cookie is valid after its time")
	}
}

// TestSharedAddress lets 256 honest users log in behind one address at the same moment, after 44 failures there. All must be served, and none
// may be charged.
func TestSharedAddress(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *service) {
		for i := range 44 {
			s.want(http.StatusUnauthorized, attempt{user: fmt.Sprint("victim", i), password: "guess"})
		}
		var waiting sync.WaitGroup
		waiting.Add(attackers)
		s.users.before = func(ctx context.Context, _ string) error { // waits until all passwords are being checked
			waiting.Done()
			all := make(chan struct{})
			go func() { waiting.Wait(); close(all) }()
			select {
			case <-all:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(patience / 2):
				return errors.New("some users were denied")
			}
		}
		statuses := s.attack(func(i int) (context.Context, attempt) {
			return s.Context(), attempt{user: fmt.Sprint("user", i), password: rightWord, from: "203.0.113.1"}
		})
		if statuses[http.StatusOK] != attackers {
			s.Errorf("got the statuses %v, want only 200", statuses)
		}
		s.users.before = nil
		res, err := s.handler.addresses.Peek(s.Context(), "ip:203.0.113.1")
		if err != nil || res.Remaining < 300-44 {
			s.Errorf("%d units are left, error %v; want at least %d", res.Remaining, err, 300-44)
		}
	})
}

// TestSettled checks that everything except a proven success is charged as a failure, in both limits.
func TestSettled(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *service) {
		tries := 0
		for name, c := range map[string]struct {
			before   func(ctx context.Context, account string) error
			password string
			leaves   bool  // whether the client leaves
			failed   int64 // how many failures are charged
		}{
			"right":                     {nil, rightWord, false, 0},
			"wrong":                     {nil, "wrong", false, 1},
			"error":                     {func(context.Context, string) error { return errors.New("the database is away") }, rightWord, false, 1},
			"panic":                     {func(context.Context, string) error { panic("nil map") }, rightWord, false, 1},
			"exit":                      {func(context.Context, string) error { panic(http.ErrAbortHandler) }, rightWord, false, 1},
			"left, and right":           {func(ctx context.Context, _ string) error { <-ctx.Done(); return nil }, rightWord, true, 1},
			"left, and wrong":           {func(ctx context.Context, _ string) error { <-ctx.Done(); return nil }, "wrong", true, 1},
			"left, and the store ended": {func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }, rightWord, true, 1},
		} {
			s.Run(name, func(t *testing.T) {
				own := *s
				own.T = t
				checked := make(chan struct{})
				s.users.before = func(ctx context.Context, account string) error {
					defer close(checked)
					if c.before == nil {
						return nil
					}
					return c.before(ctx, account)
				}
				tries++
				user, from := strings.ReplaceAll(name, " ", "-"), fmt.Sprintf("2001:db8:%x::", tries)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if c.leaves {
					time.AfterFunc(100*time.Millisecond, leave)
				}
				_, _, _, _ = own.send(ctx, attempt{user: user, password: c.password, from: from})
				<-checked
				own.wantFailed(s.handler.accounts, keyfunc.ForUser(user), c.failed)
				own.wantFailed(s.handler.addresses, "ip:"+from+"/64", c.failed)
			})
		}
	})
}

// wantFailed waits until exactly want failures are charged for a key, and nothing is held.
func (s *service) wantFailed(lim *core.Limiter, key string, want int64) {
	s.Helper()
	var res core.Result
	var err error
	for began := time.Now(); time.Since(began) < patience/6; time.Sleep(time.Millisecond) {
		if res, err = lim.Peek(s.Context(), key); err == nil && res.Limit-res.Remaining == want {
			return
		}
	}
	s.Errorf("%s: %d of %d units are left, error %v; want %d failures charged", key, res.Remaining, res.Limit, err, want)
}

// TestBodies sends bodies that other parsers read in other ways. Each body must be refused, or count for the account whose password is checked.
func TestBodies(t *testing.T) {
	t.Parallel()
	blanks := strings.Repeat(" ", 1<<20)
	s, tries := serve(t, core.NewMemory), 0
	for name, c := range map[string]struct {
		media, body string
		status      int
		account     string // the account that is counted and checked
	}{
		"plain":                  {jsonType, `{"user":"alice","password":"x"}`, 401, "alice"},
		"with a charset":         {jsonType + "; charset=utf-8", `{"user":"alice","password":"x"}`, 401, "alice"},
		"a byte behind":          {jsonType, `{"user":"alice","password":"x"} .`, 400, ""},
		"a word behind":          {jsonType, `{"user":"alice","password":"x"} x`, 400, ""},
		"a value behind":         {jsonType, `{"user":"alice","password":"x"}{"user":"bob"}`, 400, ""},
		"a bracket behind":       {jsonType, `{"user":"alice","password":"x"}]`, 400, ""},
		"NUL behind":             {jsonType, "{\"user\":\"alice\",\"password\":\"x\"}\x00", 400, ""},
		"blanks behind":          {jsonType, `{"user":"alice","password":"x"}` + " \n\t\r", 401, "alice"},
		"1 MiB of blanks behind": {jsonType, `{"user":"alice","password":"x"}` + blanks, 413, ""},
		"1 MiB of blanks before": {jsonType, blanks + `{"user":"alice","password":"x"}`, 413, ""},
		"1 MiB of blanks inside": {jsonType, `{"user":` + blanks + `"alice","password":"x"}`, 413, ""},
		"the name twice":         {jsonType, `{"user":"bob","user":"alice","password":"x"}`, 401, "alice"},
		"the name, and null":     {jsonType, `{"user":"alice","user":null,"password":"x"}`, 401, "alice"},
		"another case":           {jsonType, `{"USER":"alice","password":"x"}`, 401, "alice"},
		"both cases":             {jsonType, `{"user":"bob","USER":"alice","password":"x"}`, 401, "alice"},
		"a folded letter":        {jsonType, `{"u\u017fer":"alice","password":"x"}`, 401, "alice"},
		"an escaped name":        {jsonType, `{"user":"\u0061lice","password":"x"}`, 401, "alice"},
		"a batch":                {jsonType, `[{"user":"alice","password":"x"},{"user":"alice","password":"y"}]`, 400, ""},
		"no name":                {jsonType, `{"password":"x"}`, 400, ""},
		"a blank name":           {jsonType, `{"user":"  ","password":"x"}`, 400, ""},
		"a number":               {jsonType, `{"user":7,"password":"x"}`, 400, ""},
		"null":                   {jsonType, `null`, 400, ""},
		"nothing":                {jsonType, ``, 400, ""},
		"a byte order mark":      {jsonType, "\ufeff" + `{"user":"alice","password":"x"}`, 400, ""},
		"a control character":    {jsonType, `{"user":"al\u0000ice","password":"x"}`, 400, ""},
		"a long name":            {jsonType, `{"user":"` + strings.Repeat("a", 255) + `","password":"x"}`, 400, ""},
		"the longest name":       {jsonType, `{"user":"` + strings.Repeat("a", 254) + `","password":"x"}`, 401, strings.Repeat("a", 254)},
		"a form":                 {formType, "user=alice&password=x", 401, "alice"},
		"a form, the name twice": {formType, "user=alice&user=bob&password=x", 401, "alice"},
		"a form, another case":   {formType, "User=bob&user=alice&password=x", 401, "alice"},
		"a form, ill escaped":    {formType, "user=alice&password=x&%zz", 400, ""},
		"a form with semicolons": {formType, "user=alice;user=bob&password=x", 400, ""},
		"a form, too large":      {formType, "user=alice&password=x&" + strings.Repeat("a", 1<<20), 413, ""},
		"a form, not UTF-8":      {formType, "user=al%ffice&password=x", 400, ""},
		"a Kelvin sign":          {jsonType, `{"user":"\u212Aarl","password":"x"}`, 400, ""}, // ToLower makes a k of it
		"an accent":              {formType, "user=ren%C3%A9e&password=x", 400, ""},
		"a blank inside":         {formType, "user=al+ice&password=x", 400, ""},
		"NUL inside":             {formType, "user=al%00ice&password=x", 400, ""},
		"another media type":     {"text/plain", `{"user":"alice","password":"x"}`, 415, ""},
		"JSON as a form":         {formType, `{"user":"alice","password":"x"}`, 400, ""},
		"a form as JSON":         {jsonType, "user=alice&password=x", 400, ""},
		"multipart":              {"multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=user\r\n\r\nalice\r\n--x--\r\n", 415, ""},
		"no media type":          {" ", "user=alice&password=x", 415, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s.users.checks.Clear()
			before := map[string]int64{}
			for _, account := range []string{"alice", "bob", c.account} {
				before[account] = s.left(account)
			}
			tries++
			status, _, _ := s.try(attempt{body: c.body, media: c.media, from: fmt.Sprintf("2001:db8:%x::", tries)})
			if status != c.status {
				t.Errorf("got status %d, want %d", status, c.status)
			}
			for account, left := range before {
				want := int64(0)
				if account != "" && account == c.account {
					want = 1
				}
				if n := left - s.left(account); n != want {
					t.Errorf("%q is counted %d times, want %d", account, n, want)
				}
				if n := s.users.of(account).Load(); n != want {
					t.Errorf("%q is checked %d times, want %d", account, n, want)
				}
			}
			if err := s.handler.Unlock(t.Context(), "alice"); err != nil {
				t.Errorf("Unlock: got error %v, want none", err)
			}
		})
	}
}

// left returns how many failures an account has left.
func (s *service) left(account string) int64 {
	s.Helper()
	if account == "" {
		return 0
	}
	res, err := s.handler.accounts.Peek(s.Context(), keyfunc.ForUser(account))
	if err != nil {
		s.Fatal(err)
	}
	return res.Remaining
}

// TestQuery sends another name in the URL than in the body. The name in the URL must not be used.
func TestQuery(t *testing.T) {
	t.Parallel()
	s := serve(t, core.NewMemory)
	s.url += "?user=bob&password=" + url.QueryEscape(rightWord)
	s.want(http.StatusUnauthorized, attempt{user: "alice", password: "x"})
	s.want(http.StatusBadRequest, attempt{body: "password=x", media: formType})
	if n := s.users.of("alice").Load(); n != 1 {
		t.Errorf("the password of alice was checked %d times, want once", n)
	}
}

// TestLogs makes the user store fail: the log must contain the error, but neither the name nor the password, which users may mix up.
func TestLogs(t *testing.T) {
	var logs strings.Builder
	slog.SetDefault(slog.New(slog.NewTextHandler(&logs, nil)))
	defer slog.SetDefault(slog.New(slog.DiscardHandler))
	s := serve(t, core.NewMemory)
	s.users.before = func(context.Context, string) error { return errors.New("the database is away") }
	s.want(http.StatusInternalServerError, attempt{user: "somebody", password: rightWord})
	for _, word := range []string{"somebody", rightWord} {
		if strings.Contains(logs.String(), word) {
			t.Errorf("the log contains %q: %s", word, logs.String())
		}
	}
	if !strings.Contains(logs.String(), "the database is away") {
		t.Errorf("the log does not contain the error: %s", logs.String())
	}
}

// TestConfig checks the mistakes that New refuses.
func TestConfig(t *testing.T) {
	t.Parallel()
	whole := Config{
		NewLimiter: core.NewMemory, Address: keyfunc.IP(), Secret: make([]byte, 32), Users: &fakeUsers{},
		LoggedIn: func(http.ResponseWriter, *http.Request, string) {},
	}
	if _, err := New(whole); err != nil {
		t.Errorf("the whole Config: got error %v, want none", err)
	}
	for name, change := range map[string]func(c *Config){
		"NewLimiter": func(c *Config) { c.NewLimiter = nil },
		"Address":    func(c *Config) { c.Address = nil },
		"Users":      func(c *Config) { c.Users = nil },
		"LoggedIn":   func(c *Config) { c.LoggedIn = nil },
		"Secret":     func(c *Config) { c.Secret = make([]byte, 31) },
		"the limiter": func(c *Config) {
			c.NewLimiter = func(string, ...core.Option) (*core.Limiter, error) { return nil, errors.New("no") }
		},
	} {
		c := whole
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("New accepted a Config without %s, or with a wrong one", name)
		}
	}
}
