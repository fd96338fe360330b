# Each target is one line that also works typed by hand.
GO   ?= go
TIME ?= 10s
SOAK ?= 30m

.PHONY: help
help: ## Print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | expand -t 14

.PHONY: demo
demo: ## Start everything embedded and take the tour
	$(GO) run ./cmd/sandjet demo

.PHONY: test
test: ## Run the tests, and say what was skipped and why
	$(GO) test -json ./... | $(GO) run ./internal/testreport

.PHONY: test-long
test-long: ## Run the long form of every test; it needs what .ci/run installs
	CI=true SANDJET_CRASH=long $(GO) test -json -timeout 30m ./... | $(GO) run ./internal/testreport

.PHONY: conformance
conformance: ## Run the whole suites of boxes: each level, as root and as an ordinary user
	CI=true $(GO) test ./providers/... -count=1 -timeout 30m

.PHONY: crash
crash: ## Run the crash suite in its long form
	SANDJET_CRASH=long $(GO) test ./internal/crashtest -count=1 -v -timeout 30m

.PHONY: soak
soak: ## Run every role under a mixed load and judge its growth (SOAK=30m)
	SANDJET_SOAK=$(SOAK) $(GO) test ./internal/crashtest -run '^TestSoak$$' -count=1 -v -timeout 0

.PHONY: race
race: ## Run the tests with the race detector
	$(GO) test -race -short -timeout 20m ./...

.PHONY: lint
lint: ## Run the linters (builds them on first use)
	$(GO) tool -modfile=tools.mod golangci-lint run

.PHONY: fuzz
fuzz: ## Run each fuzz target for a while (TIME=10s)
	.ci/fuzz $(TIME)

.PHONY: gen
gen: ## Write the generated documents; twice leaves no difference
	$(GO) run ./internal/gen

.PHONY: build
build: ## Build sandjet and sandjet-box into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags="-s -w" -o bin/ ./cmd/...

.PHONY: ci
ci: ## Run what the gate runs
	.ci/run

.PHONY: clean
clean: ## Remove what building leaves
	rm -rf bin
