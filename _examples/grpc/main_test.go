package main

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// serveExample serves the example with an embedded Redis, and returns a client.
func serveExample(t *testing.T) grpc_health_v1.HealthClient {
	t.Helper()
	rdb := connect("")
	t.Cleanup(func() { _ = rdb.Close() })
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := limited(rdb)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

// TestCalls makes calls until one is denied, and one with an API key, which has a limit of its own.
func TestCalls(t *testing.T) {
	client, began := serveExample(t), time.Now()
	var header, trailer metadata.MD
	admitted, err := 0, error(nil)
	for admitted < 100 {
		if _, err = client.Check(t.Context(), nil, grpc.Header(&header), grpc.Trailer(&trailer)); err != nil {
			break
		}
		admitted++
	}
	if most := 11 + int(time.Since(began)/time.Second); admitted < 10 || admitted > most {
		t.Errorf("%d calls were admitted before a denial, want 10 to %d", admitted, most)
	}
	denied := metadata.Join(header, trailer)
	if status.Code(err) != codes.ResourceExhausted || len(denied.Get("retry-after")) != 1 || denied.Get("x-ratelimit-remaining")[0] != "0" {
		t.Errorf("the denied call: got error %v and the metadata %v, want RESOURCE_EXHAUSTED, a retry-after, and 0 left", err, denied)
	}
	withKey := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", "demo-key-1")
	if _, err := client.Check(withKey, nil, grpc.Header(&header)); err != nil || header.Get("x-ratelimit-remaining")[0] != "4" {
		t.Errorf("a call with an API key: got error %v and the header %v, want none and 4 left", err, header)
	}
}

// TestStreams opens as many streams as one client may have open. When one of them ends, another one may begin.
func TestStreams(t *testing.T) {
	client := serveExample(t)
	watch := func(ctx context.Context) error {
		stream, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv() // a stream that is served sends a message at once
		}
		return err
	}
	first, end := context.WithCancel(t.Context())
	defer end()
	for i, ctx := range []context.Context{first, t.Context()} {
		if err := watch(ctx); err != nil {
			t.Fatalf("stream %d: got error %v, want none", i+1, err)
		}
	}
	if err := watch(t.Context()); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a third stream: got error %v, want RESOURCE_EXHAUSTED", err)
	}
	end()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := watch(t.Context())
		if err == nil {
			return
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("a stream after another has ended: got error %v, want none within 30 s", err)
		}
	}
}
