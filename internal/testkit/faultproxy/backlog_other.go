//go:build !unix

package faultproxy

import "net"

// shrink cannot change the backlog on this system: connecting succeeds, and the connection is never accepted.
func shrink(*net.TCPListener) int { return 0 }
