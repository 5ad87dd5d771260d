// Package coalesce compares decisions that share a round trip with decisions that have a round trip each. Only the commands
// sent to Redis may differ.
package coalesce
