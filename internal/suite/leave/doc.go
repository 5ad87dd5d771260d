// Package leave proves that nothing stays behind of callers that leave while Redis is asked, and that
// how long a caller waits decides nothing for others.
package leave
