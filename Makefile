# Every target is a script or a go command: see scripts/. modules.txt is the table of modules that they read.

FUZZTIME ?= 30s
VERSION ?= v0.1.0

.PHONY: help
help: ## Show this text.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: test
test: ## Check what is needed, then run everything: images, lint, all tests on all servers, mutants.
	@scripts/test.sh

.PHONY: test-quick
test-quick: ## Test the core and each adapter, and run the suite with goredis on one real server; for daily work.
	@scripts/test.sh quick

.PHONY: matrix
matrix: ## Run the conformance suite with every client on every server, in every topology and protocol.
	@scripts/test.sh matrix

.PHONY: lint
lint: ## Check modules, style and other platforms, without running a test.
	@scripts/lint.sh

.PHONY: fmt
fmt: ## Format all Go code.
	@scripts/golangci.sh fmt

.PHONY: tidy
tidy: ## Make go.work follow modules.txt, and every go.mod and go.sum tidy.
	@scripts/tidy.sh

.PHONY: images
images: ## Get or build the container images of the servers.
	@scripts/images.sh

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME each (30s).
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## Measure beside bare clients and other caches, and plot it in docs/.
	@cd benchmarks && GOWORK=off go run . -plots ../docs

.PHONY: bench-quick
bench-quick: ## The same with fewer runs, in under five minutes, without plots.
	@cd benchmarks && GOWORK=off go run . -quick

.PHONY: scale
scale: ## Simulate 10 to 10,000 processes on one key, and check 10 and 20 against real ones: see docs/scale.md.
	@cd tests && GOWORK=off go test -count=1 -v -timeout=20m -run="^(TestScale|TestProcesses)$$" ./scale -args -processes=10,100,1000,10000 -real=10,20 -margin=2

.PHONY: histories
histories: ## Record what processes of every client do while faults happen, for five minutes, and check it: see docs/correctness.md.
	@scripts/histories.sh $(ARGS)

.PHONY: reliability
reliability: ## Let each fault happen once, and measure how long processes take to serve again: see docs/reliability.md.
	@scripts/histories.sh reliability $(ARGS)

.PHONY: soak
soak: ## Read 200,000 keys with every client for half an hour, with a fault each minute: what processes use must not grow.
	@scripts/histories.sh soak $(ARGS)

.PHONY: mutants
mutants: ## Run the conformance suite on broken drivers; the case of the broken rule must fail each.
	@scripts/mutants.sh drivers

.PHONY: script-mutants
script-mutants: ## Remove each condition of the scripts in turn; a test must notice.
	@scripts/mutants.sh scripts

.PHONY: model
model: ## Check the model of the protocol with spin, exhaustively for its bounds: see docs/correctness.md.
	@scripts/model.sh

.PHONY: model-quick
model-quick: ## The same with smaller bounds, in about two minutes.
	@scripts/model.sh quick

.PHONY: model-mutants
model-mutants: ## Weaken each rule of the model in turn; spin must find a counterexample, which is drawn in docs/correctness.md.
	@scripts/model.sh mutants

.PHONY: release-check
release-check: ## Release every module to a temporary proxy, at VERSION (v0.1.0), and use it from there as users would.
	@scripts/release-check.sh $(VERSION)
