// Package coalesce holds decisions that share a round trip to those that have one
// each: there is no difference but that in commands.
package coalesce
