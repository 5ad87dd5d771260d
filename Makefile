# The commands of CONTRIBUTING.md under short names. CI runs .ci/run, not this.
FUZZTIME ?= 10s

.DEFAULT_GOAL := help
.PHONY: help quick test race lint bench fuzz ci

help: ## lists the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

quick: ## the tests that most mistakes fail, in under 2 minutes on 2 cores
	REDISLIMIT_PROPERTY_RUNS=2 go test ./core/... ./keyfunc ./admin ./nethttp ./limittest ./internal/algorithm ./internal/batch \
		./internal/calendar ./internal/denials ./internal/diagnose ./internal/health ./internal/hold ./internal/key ./internal/lease ./internal/memory \
		./internal/redisstore ./internal/suite/conformance/... ./internal/tools/...

test: ## all tests of the main module; those that need a Redis start redis-server, or are skipped without it
	go test ./...

race: ## the same with the race detector
	go test -race ./...

lint: ## gofmt, go mod tidy and golangci-lint, of all modules; builds the linter the first time
	bash .ci/run gofmt 'go mod tidy' golangci-lint

bench: ## what needs no Redis, and then a quick look at the library beside its peers: see _benchmarks/README.md
	go test -C _benchmarks -run '^$$' -bench . -benchmem
	go run -C _benchmarks . -quick

fuzz: ## each fuzz test for FUZZTIME (10s)
	bash .ci/fuzz $(FUZZTIME)

ci: ## all that CI does; on Debian, as root: it installs what it needs
	bash .ci/run
