// Package together tests decisions of several limiters at once: all of them admit a call or none does, whichever callers
// leave, processes die or replies are lost meanwhile.
package together
