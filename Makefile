# The commands of CONTRIBUTING.md under short names. CI runs .ci/run, not this.
FUZZTIME ?= 10s

.DEFAULT_GOAL := help
.PHONY: help test all race lint bench fuzz ci

help: ## lists the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

test: ## the tests that notice most mistakes in the engine, in less than 2 minutes on 2 cores
	REDISLIMIT_PROPERTY_RUNS=2 go test ./core/... ./keyfunc ./admin ./nethttp ./limittest ./internal/algorithm ./internal/batch \
		./internal/calendar ./internal/denials ./internal/diagnose ./internal/health ./internal/hold ./internal/key ./internal/lease ./internal/memory \
		./internal/redisstore ./internal/suite/conformance ./internal/tools/...

all: ## all tests of the main module; tests that need Redis start redis-server, and are skipped without it
	go test ./...

race: ## the same with the race detector
	go test -race ./...

lint: ## gofmt, go mod tidy and golangci-lint over all modules; builds the linter the first time
	bash .ci/run gofmt tidy lint

bench: ## the benchmarks that need no Redis, then a short comparison with other libraries; see _benchmarks/README.md
	go test -C _benchmarks -run '^$$' -bench . -benchmem
	go run -C _benchmarks . -quick

fuzz: ## each fuzz test for FUZZTIME (10s)
	bash .ci/fuzz $(FUZZTIME)

ci: ## everything that CI does; needs Debian and root, because it installs what it needs
	bash .ci/run
