// Package planted tests what the scripts make of values in Redis that they did not write: planted, damaged or old ones.
// The rules are in the document of package algorithm, "Foreign values".
package planted
