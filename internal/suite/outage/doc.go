// Package outage proves what a Limiter does while Redis is slow, gone or lying: real servers, real clients, and faults
// between them. It holds tests only.
package outage
