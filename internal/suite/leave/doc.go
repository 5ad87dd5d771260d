// Package leave tests callers that leave while Redis decides: they leave no units or slots behind, and how long one caller
// waits does not affect other callers.
package leave
