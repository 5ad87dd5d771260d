package keyfunc

import (
	"net/netip"
	"sync/atomic"
)

// A proxyWarning is logged once if requests seem to come through a proxy that no
// option of IP names. express-rate-limit has the same check,
// ERR_ERL_UNEXPECTED_X_FORWARDED_FOR.
type proxyWarning struct {
	forPeer bool // of Peer, which has no options
	logged  atomic.Bool
}

func (w *proxyWarning) check(r Request, remote netip.Addr) {
	if w.logged.Load() || !proxyLike(remote) {
		return
	}
	header := "X-Forwarded-For"
	if r.Header(header) == "" {
		if header = "Forwarded"; r.Header(header) == "" {
			return
		}
	}
	lr, ok := r.(LoggingRequest)
	if !ok {
		return
	}
	if logger := lr.Logger(); logger != nil && !w.logged.Swap(true) {
		logger.WarnContext(r.Context(), "redislimit: a private peer sent "+header+w.advice(), "peer", r.RemoteAddr())
	}
}

func (w *proxyWarning) advice() string {
	if w.forPeer {
		return ", and requests without a key are counted by their peer's address: " +
			"behind a proxy all of them are counted as one. Consider guard.Fallback(keyfunc.IP(keyfunc.TrustedProxies(...))) " +
			"with the addresses of your proxies."
	}
	return ", which IP() does not use: behind a proxy all clients are counted as one. " +
		"Consider keyfunc.TrustedProxies with the addresses of your proxies, TrustedHops or TrustedHeader."
}

// proxyLike reports whether a reverse proxy is likely to have this address.
func proxyLike(remote netip.Addr) bool {
	return !remote.IsValid() || remote.IsPrivate() || remote.IsLoopback() || remote.IsLinkLocalUnicast()
}
