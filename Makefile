# What a person types here is one word; make help lists the words. Each target
# says what it needs and fails when it cannot have it; nothing is skipped.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# staticcheck is pinned here and run from the module cache, so that it is no
# dependency of the product.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# One package's tests may take this long with the race detector on two cores.
TEST_TIMEOUT := 12m

# Hundreds of control nodes on two databases: with the race detector they take a
# quarter of an hour, which make chaos has and a commit has not.
SUITE := cmd/dispatch/admin

FUZZTIME ?= 30s
PACKAGES ?= ./...

.PHONY: help run install test check format vet lint modules house bench fuzz fleet shots promises switches chaos drills soak

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## Serve examples/mobile-bank.yaml; no other program is needed
	go run ./cmd/dispatch serve --demo

fleet: install ## The topology of docker-compose.yml without containers: real servers, edges in two cities; Ctrl-C ends it
	go run ./e2e/fleet

# What is drawn is for people: they look for what no test sees.
shots: ## Pictures of every page in both themes and languages into ./shots, from a demo with traffic
	@go run ./internal/testenv/install shots
	go run ./e2e/browser/shots

# e2e starts the product as programs, which the race detector would not see.
test: install ## All tests, with the race detector where the product runs in them, but for the admin suite; not the promises. Finds or installs the servers they need
	go test -race -timeout $(TEST_TIMEOUT) $$(go list $(PACKAGES) | grep -Ev '/e2e(/|$$)|/drills$$|/$(SUITE)$$')
	go test -timeout $(TEST_TIMEOUT) ./$(SUITE) $$(go list $(PACKAGES) | grep '/e2e/' | grep -v '/e2e/browser')

# After the others and without the race detector: these measure.
promises: install ## The promises on a fleet of real processes and in a browser, and the drills, in small; make chaos and make drills have the full figures
	go test -count=1 -p 1 -parallel 4 -timeout 20m ./e2e ./e2e/browser
	go test -count=1 -parallel 8 -timeout 10m ./drills

check: format vet lint modules house test promises switches ## Everything CI runs: the above, format, vet, lint, modules, house rules, docs

format: ## Name the files that gofmt would change
	@changed=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go' | while read -r f; do if [ -f "$$f" ]; then echo "$$f"; fi; done)); \
	if [ -n "$$changed" ]; then echo "gofmt would change:"; echo "$$changed"; echo "try: gofmt -w FILE"; exit 1; fi

vet: ## go vet
	go vet ./...

lint: ## staticcheck; staticcheck.conf has the list of checks
	go run $(STATICCHECK) ./...

modules: ## go.mod and go.sum are tidy, and the modules are the ones they name
	go mod tidy -diff
	go mod verify

house: ## The house rules and the links of the documentation (seconds; also part of test)
	go test ./internal/house

# Each commit has its turn with others; make chaos runs all.
SWITCHES ?= -sample 3

switches: install ## Break what tests of promises guard, and want them red
	go run ./e2e/switches $(SWITCHES)

install: ## Find what the tests start, or install it (Debian, root); elsewhere say what to install
	@go run ./internal/testenv/install

# One package at a time: each has the machine's processors to itself. The commit is
# read before tee empties the file, which would make it dirty.
chaos: install ## The promises with their full figures, one line each, and every switch (about an hour); writes e2e/RESULTS.txt
	@commit=$$(git describe --always --dirty); \
	{ echo "commit $$commit, $$(date -u +%F), $$(nproc) processors"; \
	go test -count=1 -p 1 -v -timeout 90m ./e2e ./e2e/browser -args -full | grep --line-buffered -E '^(P[0-9]|E1[0-9]|WALK|SEC|PAGE|ok|FAIL|panic|---)|_test.go:'; \
	go test -race -timeout 60m ./$(SUITE); \
	go run ./e2e/switches; } | tee e2e/RESULTS.txt

# Processes of a drill wait more than they work, so more of them than processors run at once.
drills: install ## The numbers of the inner layer in full, one line each, and with the layer off (half an hour, root); writes drills/RESULTS.txt and drills/samples
	@commit=$$(git describe --always --dirty); \
	{ echo "commit $$commit, $$(date -u +%F), $$(nproc) processors"; \
	go test -count=1 -v -parallel 8 -timeout 60m ./drills -args -full | grep --line-buffered -E '^([RCAT][0-9]|COST|NET|ok|FAIL|panic|---)|_test.go:'; } | tee drills/RESULTS.txt

SOAK ?= 24h

soak: install ## DB, Redis and Consul down under load for SOAK (24h), beside a fleet that has them
	go test -count=1 -v -timeout 0 -run TestSoak ./e2e -args -soak $(SOAK)

bench: ## All benchmarks and the comparison with nginx and HAProxy; writes bench/RESULTS.md
	@go run ./internal/testenv/install bench
	go run ./bench

# Minimising is bounded: at the end of its time, go test calls an input that it is
# still minimising a failure ("context deadline exceeded").
fuzz: ## Every fuzz target for FUZZTIME (30s)
	@packages=$$(go list $(PACKAGES)); \
	for package in $$packages; do \
		list=$$(go test -list '^Fuzz' "$$package"); \
		for target in $$(grep '^Fuzz' <<<"$$list" || true); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$package"; \
		done; \
	done
