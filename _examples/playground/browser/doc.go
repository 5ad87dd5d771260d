// Package browser tests the playground, and the page of package admin, in a real browser. It is a module of its own,
// so that users of the library do not download what it needs.
package browser
