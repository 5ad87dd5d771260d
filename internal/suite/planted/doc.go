// Package planted tests what the scripts do with values in Redis that they did not write: planted, damaged or old values.
// The section "Foreign values" of the documentation of package algorithm has the rules.
package planted
