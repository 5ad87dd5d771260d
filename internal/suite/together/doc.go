// Package together proves that what several limiters decide about at once is admitted by all or by none,
// whoever leaves, dies or loses a reply meanwhile.
package together
