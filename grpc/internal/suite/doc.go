// Package suite tests the adapter with gRPC's own clients and servers, over connections. It is apart from the
// adapter, so that users of that do not checksum what the tests import.
package suite
