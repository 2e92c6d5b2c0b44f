# Targets of this repository; `make help` lists them.
#
# What is needed: Go, make, a C compiler for the race detector, and a Go module proxy; for `make test` also Debian's packages
# bubblewrap, in whose sandboxes pods run (docs/testing.md), curl and python3, which agents run by. Every other tool, a Kubernetes
# control plane included, is built from Go modules; tools run by `go tool` with the versions of hack/tools/go.mod.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO       ?= go
KUBECTL  ?= kubectl
IMG      ?= ctrlrun-operator:dev
FUZZTIME ?= 10s
STATES   ?= 2000000
SCENARIO ?=
MINUTES  ?= 20
ACTIONS  ?= 2000
SEED     ?= 0
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

TOOL     := $(GO) tool -modfile=hack/tools/go.mod
LDFLAGS  := -s -w -X main.version=$(VERSION)
# Where etcd, kube-apiserver, kubectl and what lets pods run are. A shell expression: nothing is built until a recipe needs it.
# (In two commands: export alone would hide a failure.)
ASSETS   := KUBEBUILDER_ASSETS="$$($(GO) run ./hack/assets)"; export KUBEBUILDER_ASSETS

# The version comes from LDFLAGS; asking git for it again fails in a checkout that belongs to somebody else.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)

##@ Trying it

.PHONY: demo
demo: build ## Run the five stories on a real Kubernetes API and check every count
	@$(ASSETS); $(GO) run ./test/demo

.PHONY: up
up: build ## Start a control plane with the operator on loopback and leave it running; ARGS: flags of the operator, or --node=FILE for pods
	@$(ASSETS); bin/ctrlrun-local up $(ARGS)

.PHONY: down
down: ## Stop what `make up` started, and nothing else
	@CGO_ENABLED=0 $(GO) build -o bin/ctrlrun-local ./hack/local
	@bin/ctrlrun-local down

##@ Tests

.PHONY: test
test: programs test-unit test-rules test-gitops test-node test-integration ## Run every test, with the race detector

.PHONY: test-unit
test-unit: ## Run the tests that need no control plane
	@packages="$$($(GO) list ./... | grep -v /operator/test/)"; set -x; \
	CGO_ENABLED=1 $(GO) test -race $$packages ./test/imports ./test/schema ./test/testenv/assets ./test/bench/throughput ./test/faults; \
	CGO_ENABLED=0 $(GO) test ./kernel/explore

# A module of its own; the first run compiles Prometheus, a minute on two cores.
.PHONY: test-rules
test-rules: ## Evaluate the alerts and the dashboard's queries with Prometheus' own engine
	cd hack/rules && CGO_ENABLED=0 $(GO) test ./...

# A module of its own, since it takes the libraries of Flux. Results are not cached: Go does not see that files outside of it change.
.PHONY: test-gitops
test-gitops: ## Judge recorded objects as Flux and Argo CD do
	cd hack/gitops && CGO_ENABLED=0 $(GO) test -count=1 ./...

# Said before anything else is done, and not after an hour. Nothing is skipped without them.
.PHONY: bubblewrap
bubblewrap:
	@command -v bwrap >/dev/null || { echo "pods run in sandboxes of bubblewrap, which is not there: apt-get install bubblewrap" >&2; exit 1; }

.PHONY: programs
programs: bubblewrap
	@for program in curl python3; do 		test -x "/usr/bin/$$program" || { echo "agents run by /usr/bin/$$program, which is not there: apt-get install $$program" >&2; exit 1; }; 	done

# A module of its own. With these flags it is the packages of the control plane's build that are used.
.PHONY: test-node
test-node: bubblewrap ## Run the tests of the node for tests that need no control plane
	cd hack/controlplane && CGO_ENABLED=0 $(GO) test -trimpath ./node/...

# One package at a time: each starts a control plane of its own. -v shows what a passing suite ran.
.PHONY: test-integration
test-integration: programs build ## Run the tests on a real kube-apiserver and etcd
	@$(ASSETS); set -x; \
	CGO_ENABLED=1 $(GO) test -race -p 1 -timeout 10m ./test/testenv ./test/soak; \
	CGO_ENABLED=1 $(GO) test -race -p 1 -timeout 20m -v ./test/chaos/...; \
	CGO_ENABLED=1 $(GO) test -race -p 1 -timeout 60m -v ./test/e2e/... -ginkgo.no-color -ginkgo.fail-on-pending -ginkgo.randomize-all

.PHONY: explore
explore: ## Look at STATES (2000000, -1: all) states of each SCENARIO (all; several by comma) of the protocol
	@CGO_ENABLED=0 $(GO) run ./hack/explore -v -states "$(STATES)" -scenario "$(SCENARIO)"

.PHONY: soak
soak: build ## For MINUTES (20), see whether any effect becomes Ambiguous by itself; ARGS: flags of test/soak
	@$(GO) run ./test/soak --minutes="$(MINUTES)" $(ARGS)

.PHONY: chaos
chaos: build ## Let everything go wrong for ACTIONS (2000) actions and judge what is left; SEED to do it again; report in bin/chaos.json
	@$(ASSETS); $(GO) test -count=1 -timeout 0 -v ./test/chaos -run '^TestChaos$$' -args -length long -actions "$(ACTIONS)" -seed "$(SEED)" -report "$(CURDIR)/bin/chaos.json"

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (10s)
	@GO="$(GO)" hack/fuzz.sh "$(FUZZTIME)"

.PHONY: bench
bench: build ## Measure governed actions beside raw creates; ARGS: flags of test/bench/throughput, such as --quick
	@$(ASSETS); $(GO) run ./test/bench/throughput $(ARGS)

##@ Code

.PHONY: build
build: ## Build the operator and the kubectl plugin into bin/
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags="$(LDFLAGS)" -o bin/ctrlrun-operator ./cmd/ctrlrun-operator
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags="$(LDFLAGS)" -o bin/kubectl-ctrlrun ./cmd/kubectl-ctrlrun
	@CGO_ENABLED=0 $(GO) build -o bin/ctrlrun-local ./hack/local

.PHONY: generate
generate: ## Write the deepcopy functions of api/
	$(TOOL) controller-gen object:headerFile=hack/boilerplate/boilerplate.go.txt paths=./api/...

.PHONY: manifests
manifests: ## Write the CRDs of api/ into config/crd/bases; roles and admission policies are written by hand
	rm -f config/crd/bases/*.yaml
	$(TOOL) controller-gen crd paths=./api/... output:crd:dir=config/crd/bases

.PHONY: verify
verify: ## Fail if generated files, formatting, go.mod or manifests are not what they should be
	@GO="$(GO)" hack/verify.sh

.PHONY: lint
lint: ## Run staticcheck
	$(TOOL) staticcheck ./...

.PHONY: control-plane
control-plane: ## Build etcd, kube-apiserver, kubectl and a node for tests from Go modules, once, and print where they are
	@$(GO) run ./hack/assets

##@ A cluster of your own

.PHONY: docker-build
docker-build: ## Build the operator's image IMG
	docker build --build-arg VERSION=$(VERSION) -t $(IMG) .

.PHONY: install
install: ## Install into the cluster of the current kube context, with the image IMG
	@KUBECTL="$(KUBECTL)" hack/install.sh "$(IMG)"

.PHONY: run
run: ## Run the operator here, against the cluster of the current kube context; ARGS: more flags
	$(GO) run ./cmd/ctrlrun-operator --namespace=ctrlrun-system --metrics-bind-address=127.0.0.1:8080 --health-probe-bind-address=127.0.0.1:8081 $(ARGS)

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
