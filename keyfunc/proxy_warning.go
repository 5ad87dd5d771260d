package keyfunc

import (
	"net/netip"
	"sync/atomic"
)

// A proxyWarning is logged once if requests seem to come through a proxy that no option of IP names.
// express-rate-limit has the same check, ERR_ERL_UNEXPECTED_X_FORWARDED_FOR.
type proxyWarning struct {
	forPeer           bool // for Peer, which has no options
	logged            atomic.Bool
	overwrittenLogged atomic.Bool
}

// overwritten logs, once, a warning that a middleware has overwritten the peer's address. Some do so rightly,
// such as a middleware that turns an event of AWS Lambda into a request, so this is not an error.
func (w *proxyWarning) overwritten(r Request) {
	if !w.overwrittenLogged.Load() {
		warnOnce(r, &w.overwrittenLogged, "the peer's address, RemoteAddr, is not an address with a port, "+
			"so a middleware in front of the limiter overwrites it, such as chi's middleware.RealIP or gorilla's handlers.ProxyHeaders: "+
			"a client can then choose the address by which it is counted. "+
			"Remove that middleware, and tell keyfunc.IP which proxies you have. On AWS Lambda, where no client can do so, ignore this.")
	}
}

// warnOnce logs a warning about the peer of a request, unless it was logged before or the request has no
// logger.
func warnOnce(r Request, logged *atomic.Bool, message string) {
	lr, ok := r.(LoggingRequest)
	if !ok {
		return
	}
	if logger := lr.Logger(); logger != nil && !logged.Swap(true) {
		logger.WarnContext(r.Context(), "redislimit: "+message, "peer", r.RemoteAddr())
	}
}

// check logs a warning, once, if a request seems to have come through a proxy that the options do not fit. why
// says what is doubtful about the address that counts as the client's.
func (w *proxyWarning) check(r Request, remote netip.Addr, why doubt, trust *trust) {
	if w.logged.Load() || trust.none() && !proxyLike(remote) {
		return
	}
	sent := ""
	for _, header := range [...]string{trust.reads(), "X-Forwarded-For", "Forwarded"} {
		if r.Header(header) != "" {
			sent = header
			break
		}
	}
	if sent != "" {
		warnOnce(r, &w.logged, w.text(sent, remote, why, trust))
	}
}

func (w *proxyWarning) text(sent string, remote netip.Addr, why doubt, trust *trust) string {
	switch {
	case why == tooFew:
		return "a peer sent " + sent + " with fewer addresses than TrustedHops: a client can then add some, and choose by which it is counted. " +
			"Count only the proxies that every request passes."
	case why == privateProxy:
		return "a peer sent " + sent + " in which a private address is taken for the client, and stands behind another: if it is a proxy of yours, " +
			"all its clients are counted as one. Then add it to TrustedProxies, or to TrustedHops."
	case why == notAddress && trust.header != "":
		return "a peer sent " + trust.header + ", which is not one address, so the peer is taken for the client: all clients of a proxy that " +
			"writes such values are counted as one. Have it write the client's address."
	case why == notAddress:
		return "a peer sent " + trust.reads() + " with an entry that is not an address where a trusted proxy writes the address of its client: " +
			"all clients of that proxy are counted as one. Have it write addresses."
	case w.forPeer:
		return "a private peer sent " + sent + ", and requests without a key are counted by their peer's address: " +
			"behind a proxy all of them are counted as one. Consider guard.Fallback(keyfunc.IP(keyfunc.TrustedProxies(...))) " +
			"with the addresses of your proxies."
	case trust.none():
		return "a private peer sent " + sent + ", which IP() does not use: behind a proxy all clients are counted as one. " +
			"Consider keyfunc.TrustedProxies with the addresses of your proxies, TrustedHops or TrustedHeader."
	case trust.hasProxies() && !trust.trusts(remote):
		return "a peer that TrustedProxies does not name sent " + sent + ": if it is a proxy of yours, all its clients are counted as one. " +
			"Then add its address."
	}
	return "a peer sent " + sent + ", but not " + trust.reads() + ", from which IP takes the client: behind a proxy that does not set it " +
		"all clients are counted as one. Have it set, or give IP the options for what your proxies do send."
}

// proxyLike reports whether a reverse proxy is likely to have this address.
func proxyLike(remote netip.Addr) bool {
	return !remote.IsValid() || remote.IsPrivate() || remote.IsLoopback() || remote.IsLinkLocalUnicast()
}
