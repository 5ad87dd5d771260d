//go:build !unix

package faultproxy

import "net"

// shrink cannot change the backlog here: connects succeed, and are never accepted.
func shrink(*net.TCPListener) int { return 0 }
