package core

import "github.com/redis/go-redis/v9"

// heeds tells whether client heeds a context's deadline while it waits for a
// reply: go-redis does so only where ContextTimeoutEnabled is set. A clone of the
// client's own, made by WithTimeout with that option set, would not do instead: in
// go-redis 9.22 it has none of the hooks, such as those that trace.
func heeds(client Client) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}
