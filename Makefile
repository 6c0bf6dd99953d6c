# The one entry point for people and CI. `make` alone teaches.
PYTHON ?= python3
BIN := .venv/bin
# One stamp per interpreter asked for: another PYTHON must not silently get the old .venv.
INSTALLED := .venv/.runs-$(subst /,_,$(PYTHON))
TOOLS := .venv/.tools-$(subst /,_,$(PYTHON))
CODE := src tests examples scripts $(wildcard bench)

.DEFAULT_GOAL := help
.PHONY: help install serve tools components check test torture bench lock build clean

help: ## say what there is
	@echo "kedge: every target first installs what it needs into .venv."
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Another interpreter: make PYTHON=python3.13 test"

install: $(INSTALLED) ## make .venv with kedge (editable) and what it runs on

$(INSTALLED): requirements.lock pyproject.toml scripts/install scripts/environment.py
	@scripts/install "$(PYTHON)"
	@touch $@

tools: $(TOOLS) ## the same with the extras and the tools that working on kedge needs

$(TOOLS): requirements-dev.lock requirements.lock pyproject.toml scripts/install scripts/environment.py
	@scripts/install "$(PYTHON)" --tools
	@touch $@ $(INSTALLED)

serve: $(INSTALLED) ## serve this folder on http://127.0.0.1:4096 (ARGS="--port 0 DIR" for other than that)
	@$(BIN)/kedge serve $(ARGS)

components: $(TOOLS) ## find or install PostgreSQL, node, npm and tmux for the tests
	@scripts/components

check: $(TOOLS) ## formatting, lint, types, import layers
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/pytest -q tests/test_layers.py

test: $(TOOLS) components ## all tests but the long ones
	@scripts/test

torture: $(TOOLS) components ## the long crash, race and scale tests and every benchmark, with their figures
	KEDGE_TORTURE=1 $(BIN)/pytest -n auto --timeout 1800 -m "hypothesis and not torture"
	KEDGE_TORTURE=1 $(BIN)/pytest --timeout 1800 -m torture -rA -s

bench: $(TOOLS) ## measure
	$(BIN)/python -m bench

lock: $(TOOLS) ## write both requirements*.lock anew from pyproject.toml
	scripts/lock

build: $(TOOLS) ## wheel and sdist in dist/
	$(BIN)/hatchling build

clean: ## remove .venv, caches and dist/
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
