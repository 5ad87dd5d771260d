//go:build !unix

package faultproxy

import "net"

// shrink cannot change the backlog here: connects succeed, and nobody ever accepts them.
func shrink(*net.TCPListener) int { return 0 }
