// Package browser tests the playground, and the page of package admin, in a real browser. It is a Go module of its own,
// so that users of the library need not download what these tests import.
package browser
