# Everything a developer does here, behind one door each. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint check proto proto-setup proto-check lock bench clean format
SHELL := /bin/bash
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
PROTO_FILES := $(wildcard proto/gradstorm/v1/*.proto)
# Passed on to pytest, for example: make test ARGS="-m 'not slow' -k ring"
ARGS ?=

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: ## create .venv with everything pinned (fast when nothing changed)
	@scripts/setup.sh .venv requirements.lock project

demo: setup ## train, break, verify: the demo on local processes
	@$(BIN)/gradstorm run demo --engine local

test: setup ## run the tests (those that need Docker are left out without it)
	@$(BIN)/python -m pytest tests $(ARGS)

lint: setup proto-check ## every static gate: ruff, mypy, import rules, proto
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(if $(PROTO_FILES),$(BIN)/buf lint)

check: lint test ## the one door: static gates, then the tests; CI runs this

format: setup ## let ruff format and sort what it can
	$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

proto-setup:
	@scripts/setup.sh .venv-proto requirements-proto.lock

proto: proto-setup ## regenerate services/wire from proto/
	@scripts/proto.sh generate

proto-check: $(if $(PROTO_FILES),proto-setup) ## fail if generated code is stale
	@$(if $(PROTO_FILES),scripts/proto.sh check)

lock: ## pin requirements*.in anew (UPGRADE=--upgrade to move what is pinned)
	@UPGRADE="$(UPGRADE)" scripts/lock.sh

bench: setup ## measure this checkout against a peer on this machine
	@$(BIN)/gradstorm bench

clean: ## remove environments, caches and build output (never runs/)
	@rm -rf .venv .venv-* build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
