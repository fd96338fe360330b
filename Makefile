# Each target is one line that also works typed by hand.
GO   ?= go
TIME ?= 10s
SOAK ?= 30m
TIMES ?= 20
RUN   = $(GO) run ./internal/testrun

.PHONY: help
help: ## Print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | expand -t 18

.PHONY: demo
demo: ## Start everything embedded and take the tour
	$(GO) run ./cmd/sandjet demo

.PHONY: test
test: ## Run the tests in their short form, and say what was skipped and why
	$(RUN) "go test ./..."

.PHONY: check
check: ## Before a landing: linters, go fix, the JavaScript packages, the guides and examples
	.ci/install tests node
	$(GO) fix -diff ./...
	$(GO) tool -modfile=tools.mod golangci-lint run
	cd clients/js && npm ci --no-audit --no-fund --ignore-scripts && npm test
	$(RUN) "SANDJET_TESTS=long go test ./cmd/sandjet ./internal/archtest -run=^(TestTheGuidesRunInOrder|TestTheExamplesRun|TestClientsAreMadeOfTheDocument|TestReadmeFirstCommandRuns)$$ -count=1"

# What follows looks for faults. Each prints the seeds of what failed; SANDJET_SEED repeats one.
LONG = SANDJET_TESTS=long go test -count=1 -timeout=20m
ENGINES = Docker|Engine|E2B

.PHONY: long
long: long-crash long-floods long-cluster long-isolation long-docker long-kubernetes long-clouds long-chats long-browser long-others long-race long-fuzz ## Run every long suite but long-soak and long-steady

.PHONY: long-crash
long-crash: ## Kill, stop and cut off Sandjet's processes; fill its disk
	.ci/install tests
	$(RUN) "$(LONG) ./internal/crashtest -skip=$(ENGINES)|HeavyFloods"

.PHONY: long-floods
long-floods: ## One tenant holds as much memory and disk as it can
	.ci/install tests
	$(RUN) "$(LONG) ./internal/crashtest -run=HeavyFloods"

.PHONY: long-cluster
long-cluster: ## Three servers of the log
	.ci/install tests
	$(RUN) "$(LONG) ./internal/clustertest"

.PHONY: long-isolation
long-isolation: ## Boxes of the local provider: each level, as root and not
	.ci/install tests
	$(RUN) "$(LONG) ./providers/local/... ./providers/internal/... ./providers/providertest ./providers/runfs ./providers/supervisor ./tools/..."

.PHONY: long-docker
long-docker: ## The Docker provider on its own engine
	.ci/install tests engines node
	cd clients/js && npm ci --no-audit --no-fund --ignore-scripts && npm run build
	$(RUN) "$(LONG) ./providers/docker/..." "$(LONG) ./internal/crashtest ./bench ./cmd/sandjet -run=$(ENGINES)"

.PHONY: long-kubernetes
long-kubernetes: ## The Kubernetes provider on a double; with KUBECONFIG also make test-kubernetes
	.ci/install tests engines
	$(RUN) "$(LONG) ./providers/kubernetes/..."

.PHONY: long-clouds
long-clouds: ## The providers of clouds, on doubles; S3
	.ci/install tests node
	$(RUN) "$(LONG) -p=1 ./providers/lambda/... ./providers/e2b/... ./providers/daytona/... ./providers/vercel/... ./providers/modal/... ./providers/deno/... ./providers/bucket ./providers/filesync" \
		"SANDJET_TESTS=long go test -count=1 -p=1 -timeout=40m ./providers/daytona ./providers/deno ./providers/modal ./providers/vercel -run=^TestWhole$$ -whole" \
		"$(LONG) ./cmd/sandjet -run=^(TestWorkspacesOnS3|TestLambdaTemplateTypes)$$"

.PHONY: long-chats
long-chats: ## Chats and webhooks, with the services' libraries
	.ci/install tests node
	$(RUN) "$(LONG) ./delivery/..."

.PHONY: long-browser
long-browser: ## Clients in Node.js and Chromium; vendors' libraries
	.ci/install tests node browser plots
	cd clients/js && npm ci --no-audit --no-fund --ignore-scripts && npm run build
	$(RUN) "$(LONG) ./internal/clienttest ./internal/fakemodel ./gateway/..." \
		"$(LONG) ./cmd/sandjet -run=^(TestTheClientForJavaScript|TestTheFrameworks|TestTheGuideOfE2BRuns|TestTheExampleOfE2BRuns|TestTheClientsOfMCP)$$"

.PHONY: long-others
long-others: ## The long form of all other packages
	.ci/install tests node
	$(RUN) "$(LONG) $$($(GO) list ./... | grep -vE '/(internal/(crashtest|clustertest|clienttest|fakemodel)|providers|tools|delivery|gateway)(/|$$)' | tr '\n' ' ') -skip=^(TestDockerIsMeasured|TestWorkspacesOnS3|TestWorkspacesOnS3WithDocker|TestTheClientForJavaScript|TestTheFrameworks|TestDeepAgentsWithDocker|TestTheGuideOfE2BRuns|TestTheExampleOfE2BRuns|TestTheClientsOfMCP|TestFilesOfVolumesWithDocker)$$"

.PHONY: long-race
long-race: ## The race detector over everything
	.ci/install tests
	$(RUN) "CGO_ENABLED=1 go test -race -short -vet=off -count=1 -timeout=20m ./..."

.PHONY: long-fuzz
long-fuzz: ## Run each fuzz target (TIME=10s)
	.ci/fuzz $(TIME)

.PHONY: long-soak
long-soak: ## Run every role under a mixed load; judge growth (SOAK=30m)
	$(RUN) "SANDJET_SOAK=$(SOAK) go test ./internal/crashtest -run=^TestSoak$$ -count=1 -timeout=0"

.PHONY: long-steady
long-steady: ## The short form repeatedly under load, to find unsteady tests (TIMES=20)
	.ci/steady $(TIMES)

.PHONY: test-kubernetes
test-kubernetes: ## Run the suite of boxes in the cluster that KUBECONFIG names (SANDJET_K8S_NAMESPACE, SANDJET_K8S_IMAGE)
	SANDJET_K8S_LIVE=1 $(GO) test ./providers/kubernetes -run '^TestLive$$' -count=1 -v -timeout 60m

.PHONY: lint
lint: ## Run the linters (builds them on first use)
	$(GO) tool -modfile=tools.mod golangci-lint run

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
