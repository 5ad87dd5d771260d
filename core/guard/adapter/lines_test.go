package adapter_test

import (
	"fmt"

	"github.com/redislimit/redislimit/core/guard/adapter"
)

func ExampleHeaderLines() {
	block := []byte("Host: example.com\r\nx-tenant: acme\r\nX-Tenant:\tglobex\r\n\r\nX-Tenant: of the trailer\r\n")
	fmt.Printf("%q\n", adapter.HeaderLines(block, "X-Tenant"))
	// Output: ["acme" "globex"]
}
