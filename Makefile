# Everything a developer does here, behind one door each. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint check format proto proto-setup proto-check lock image bench clean
.PHONY: testbed-up testbed-run testbed-status testbed-logs testbed-down chaos-all
.PHONY: gate-ruff gate-format gate-types gate-imports gate-proto
SHELL := /bin/bash
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
PROTO_FILES := $(wildcard proto/gradstorm/v1/*.proto)
GATES := gate-ruff gate-format gate-types gate-imports $(if $(PROTO_FILES),gate-proto)
# Passed on to pytest, for example: make test ARGS="-m 'not slow' -k ring", or ARGS="-n 0" for one test after the other.
ARGS ?=
# Most tests wait for processes and containers: three at a time keep two cores busy.
BESIDE := -n 3 --dist loadgroup --no-loadscope-reorder

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' Makefile

setup: ## create .venv with everything pinned (fast when nothing changed)
	@scripts/setup.sh .venv requirements.lock project

demo: setup ## train, break, verify: the demo on local processes
	@$(BIN)/gradstorm run demo --engine local

test: setup ## run the tests (those that need Docker are left out without it)
	@$(BIN)/python -m pytest $(BESIDE) $(ARGS)

lint: setup $(if $(PROTO_FILES),proto-setup) ## every static gate: ruff, mypy, import rules, proto
	@$(MAKE) --keep-going $(GATES)

gate-ruff:
	$(BIN)/ruff check --quiet .
gate-format:
	$(BIN)/ruff format --check --quiet .
gate-types:
	$(BIN)/mypy
gate-imports:
	$(BIN)/lint-imports --no-logo
gate-proto:
	$(BIN)/buf lint
	@scripts/proto.sh check

check: lint test ## the one door: static gates, then the tests; CI runs this

format: setup ## let ruff format and sort what it can
	$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

proto-setup:
	@scripts/setup.sh .venv-proto requirements-proto.lock

proto: proto-setup ## regenerate services/wire from proto/
	@scripts/proto.sh generate

proto-check: proto-setup ## fail if generated code is stale
	@scripts/proto.sh check

lock: ## pin requirements*.in anew (UPGRADE=--upgrade to move what is pinned)
	@UPGRADE="$(UPGRADE)" scripts/lock.sh

image: ## build the container image, and what it needs where it cannot be pulled
	@scripts/docker-images

testbed-up: setup ## bring up a testbed in containers that stands: WORKERS=4 STRATEGY=ring, or MODE=shards SHARDS=3; ARGS=…
	@$(BIN)/gradstorm up --workers $(if $(filter shards,$(MODE)),$(or $(SHARDS),3),$(or $(WORKERS),4)) \
	    --strategy $(if $(filter shards,$(MODE)),shards,$(or $(STRATEGY),ring)) $(ARGS)

testbed-run: setup ## run SCENARIO=… STRATEGY=… in containers, while a testbed that stands rests
	@$(BIN)/gradstorm run $(or $(SCENARIO),clean) --engine containers $(if $(STRATEGY),--strategy $(STRATEGY)) $(ARGS)

chaos-all: setup ## every scenario under both strategies in containers (many minutes)
	@$(BIN)/gradstorm matrix --engine containers --strategy both $(ARGS)

testbed-status: setup ## step, generation, members, faults and delays of the testbed
	@$(BIN)/gradstorm status $(ARGS)

testbed-logs: setup ## the ends of its roles' logs (ROLE=worker-1: of one)
	@$(BIN)/gradstorm logs $(ROLE) $(ARGS)

testbed-down: setup ## take it down; nothing but its run folder is left
	@$(BIN)/gradstorm down $(ARGS)

bench: setup ## measure this checkout against a peer on this machine
	@$(BIN)/gradstorm bench

clean: ## remove environments, caches and build output (never runs/)
	@rm -rf .venv .venv-* build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
