package keyfunc

import (
	"log/slog"
	"net/netip"
	"sync/atomic"
)

// A hint warns once when requests seem to come through a proxy that nobody told
// IP about.
type hint struct{ given atomic.Bool }

func (h *hint) look(r Request, remote netip.Addr) {
	if h.given.Load() || !proxyLike(remote) || r.Header("X-Forwarded-For") == "" || h.given.Swap(true) {
		return
	}
	slog.WarnContext(r.Context(), "redislimit: a private peer sent X-Forwarded-For, which IP() does not believe: "+
		"behind a proxy all clients share its bucket. Consider keyfunc.TrustedProxies with the addresses of your proxies, "+
		"TrustedHops or TrustedHeader.", "peer", r.RemoteAddr())
}

// proxyLike tells whether a reverse proxy is likely to have this address.
func proxyLike(remote netip.Addr) bool {
	return !remote.IsValid() || remote.IsPrivate() || remote.IsLoopback() || remote.IsLinkLocalUnicast()
}
