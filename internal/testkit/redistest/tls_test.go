package redistest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	s := TLSServer(t)
	trusting := s.Client(t, s.CA)
	if err := trusting.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Server.Client(t).Get(t.Context(), "k").Result(); got != "v" || err != nil {
		t.Errorf("past TLS: %q, %v", got, err)
	}
	plain := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	t.Cleanup(func() { _ = plain.Close() })
	if err := plain.Ping(t.Context()).Err(); err == nil {
		t.Error("the port takes a client without TLS")
	}
	var unknown x509.UnknownAuthorityError
	if err := s.Client(t, s.StrangeCA).Ping(t.Context()).Err(); !errors.As(err, &unknown) {
		t.Errorf("a client that trusts another CA: %v", err)
	}

	s.Present(s.Strange)
	if err := s.Client(t, s.CA).Ping(t.Context()).Err(); !errors.As(err, &unknown) {
		t.Errorf("a strange certificate: %v", err)
	}
	if err := s.Client(t, s.StrangeCA).Ping(t.Context()).Err(); err != nil {
		t.Errorf("a client that trusts it: %v", err)
	}
	if err := trusting.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
	s.Present(s.Expired)
	var invalid x509.CertificateInvalidError
	if err := s.Client(t, s.CA).Ping(t.Context()).Err(); !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		t.Errorf("an expired certificate: %v", err)
	}
	s.Present(s.Cert)
	if err := s.Client(t, s.CA).Ping(t.Context()).Err(); err != nil {
		t.Errorf("the right one again: %v", err)
	}

	s.Present(s.Strange)
	s.Server.Stop()
	s.Server.Start(t)
	if got, err := s.Client(t, s.CA).Exists(t.Context(), "k").Result(); got != 0 || err != nil {
		t.Errorf("after a restart: %d, %v", got, err)
	}
}

func TestTLSOfClients(t *testing.T) {
	t.Parallel()
	s := TLSServer(t, "--tls-auth-clients", "yes")
	if err := s.Client(t, s.CA, s.Cert).Ping(t.Context()).Err(); err != nil {
		t.Errorf("a client with a certificate: %v", err)
	}
	for name, certs := range map[string][]tls.Certificate{"none": nil, "a strange one": {s.Strange}, "an expired one": {s.Expired}} {
		if err := s.Client(t, s.CA, certs...).Ping(t.Context()).Err(); err == nil {
			t.Errorf("a client with %s is let in", name)
		}
	}
}
