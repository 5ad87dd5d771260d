// Package browser drives the playground in a real browser. It is a module of its
// own so that what that needs reaches no user of the library.
package browser
