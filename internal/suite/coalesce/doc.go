// Package coalesce compares decisions that share a round trip with decisions that have one each. Only the
// commands may differ.
package coalesce
