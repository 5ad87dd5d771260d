// Package outage tests what a Limiter does while Redis is slow, unavailable or wrong, with real servers, real clients, and
// faults between them. It has tests only.
package outage
