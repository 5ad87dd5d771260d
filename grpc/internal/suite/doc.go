// Package suite tests the adapter with gRPC's own clients and servers over real connections. It is separate
// from the adapter, so that users of the adapter need not download what the tests import.
package suite
