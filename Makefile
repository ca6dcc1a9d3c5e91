# The front door. `make help` lists what there is.

SHELL := /bin/bash
BIN := target/debug/agentfleet
# System packages, by the command or file that shows they are there.
RUN_PACKAGES := cc:gcc c++:g++ protoc:protobuf-compiler
SERVER_PACKAGES := java:openjdk-17-jdk-headless mvn:maven curl:curl flock:util-linux
TEST_PACKAGES := python3:python3 sqlite3:sqlite3 keytool:openjdk-17-jdk-headless $(SERVER_PACKAGES)

.DEFAULT_GOAL := help
.PHONY: help run ask test lint deny format soak chaos bench setup setup-test build clean schemas

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | awk -F'\t' '{printf "  make %-10s %s\n", $$1, $$2}'

run: build ## Build, load the example dossier, ask the worked example, show what to do next
	@$(BIN) demo

ask: build ## Ask a question of your own: make ask Q="..."
	@test -n "$(Q)" || { echo 'usage: make ask Q="your question"'; exit 2; }
	@$(BIN) ask "$(Q)"

build: setup ## Build the binary
	@test -e $(BIN) || echo "Building; the first time compiles every dependency and takes about eight minutes on 2 cores."
	@cargo build --workspace --bin agentfleet

setup: ## Install the system packages a build needs (skipped when present)
	@deploy/packages.sh $(RUN_PACKAGES)

setup-test: setup ## Install what the tests need beside that
	@deploy/packages.sh $(TEST_PACKAGES)
	@tests/validators/venv.sh >/dev/null
	@tests/clients/venv.sh >/dev/null
	@tests/issuer/venv.sh >/dev/null
	@tests/mcp/venv.sh >/dev/null
	@tests/llm/venv.sh >/dev/null
	@deploy/pulsar.sh install
	@deploy/fuseki.sh install
	@deploy/s3.sh install
	@deploy/postgres.sh install
	@deploy/tests/tools.sh install

# Runs a command, and says how long it took.
stage = echo "== $(1)"; began=$$SECONDS; $(2); echo "== $(1): $$((SECONDS - began)) s"

lint: setup ## Check formatting, clippy, that no banned library is linked, and licences
	@set -e; $(call stage,formatting,cargo fmt --all --check)
	@set -e; $(call stage,clippy,cargo clippy --workspace --all-targets --quiet -- -D warnings)
	@set -e; $(call stage,banned libraries,deploy/banned.sh openssl-sys native-tls aws-lc-rs aws-lc-sys async-std)
	@set -e; $(call stage,licences,deploy/licences.sh)

deny: ## Ask cargo-deny for licences and known vulnerabilities (installs it, and needs the network)
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	@cargo deny check licenses advisories sources

test: setup-test lint ## Everything: lint, unit, contract, simulator, real processes, validators, clients, deployment
	@set -e; $(call stage,building,cargo build --workspace --bin agentfleet && cargo test --workspace --no-run)
	@set -e; $(call stage,tests,tests/run.py)

soak: build ## Kill a fleet under load for five minutes, and simulate 20,000 fleets: nothing is lost or done twice
	@AGENTFLEET_KILL_SECONDS=300 cargo test --workspace --test program kill:: -- --nocapture
	@AGENTFLEET_SIM_RUNS=20000 cargo test --workspace --test simulated simulator::fresh -- --nocapture

chaos: setup-test build ## Storm a fleet on real Pulsar, PostgreSQL and SPARQL servers for ten minutes; then a report
	@AGENTFLEET_STORM_KILLS=10 AGENTFLEET_STORM_SECONDS=600 AGENTFLEET_STORM_WAVE=100 AGENTFLEET_STORM_TRACES=1000000 cargo test --workspace --test servers storm:: -- --nocapture

bench: setup ## Measure the release build, as ratios to the physical floor in the same run (one part: ONLY=steps; on servers: ONLY=servers; beside Restate, LangGraph and DBOS: WITH=peers)
ifneq (,$(filter-out peers,$(WITH)))
	@echo 'nothing to compare with is called `$(WITH)`: choose WITH=peers, or leave it out' >&2; exit 2
endif
ifneq (,$(filter servers,$(ONLY)))
	@deploy/packages.sh $(SERVER_PACKAGES)
	@deploy/pulsar.sh install
	@deploy/fuseki.sh install
	@deploy/postgres.sh install
endif
ifneq (,$(WITH))
	@tests/peers/install.sh >/dev/null
endif
	@echo "Building what is deployed, with --release; the first time that takes long."
	@cargo build --release --workspace --bin agentfleet --bin bench
	@$(if $(WITH),tests/peers/run.py,target/release/bench) $(ONLY)

schemas: ## Write the JSON Schemas and the data dictionary anew
	@cargo build --quiet --workspace --example generate
	@target/debug/examples/generate

format: ## Format the code
	@cargo fmt --all

clean: ## Remove what was built
	@cargo clean
	@rm -rf .venv .venv-clients .venv-issuer .venv-mcp .venv-llm .cache
