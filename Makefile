# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: help env demo test test-vllm lint format catalog bench pebble clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

env: $(STAMP) ## create .venv with everything pinned in constraints.txt

$(STAMP): pyproject.toml constraints.txt
	@echo "==> creating $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@echo "==> installing torch (CPU)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	@echo "==> installing tokencover and its tools"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@
	@echo "==> environment ready"

demo: $(STAMP) ## ask the bundled model about a picture, with and without pruning, offline
	@echo "==> asking the bundled model, with all 576 visual tokens and with 64"
	@$(BIN)/tokencover ask --out demo

test: $(STAMP) ## everything that must pass
	@echo "==> running the tests"
	@$(BIN)/python -m pytest

test-vllm: ## the vLLM plugin, in an environment of its own that is kept below ~/.cache
	@PYTHON=$(PYTHON) tools/test_vllm.sh $(IF_POSSIBLE)

lint: $(STAMP) ## style, types and the direction of imports
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "==> mypy --strict"
	@$(BIN)/mypy
	@echo "==> import-linter"
	@$(BIN)/lint-imports

format: $(STAMP) catalog ## let ruff correct what it can, and write the catalog anew
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

catalog: $(STAMP) ## write catalog, stubs and tables of methods from the classes themselves
	@$(BIN)/python tools/write_catalog.py

bench: $(STAMP) ## how fast selection and prefill are, as ratios within one run
	@$(BIN)/python benchmarks/selection.py
	@$(BIN)/python benchmarks/prefill.py

pebble: $(STAMP) ## train the bundled model again (about an hour on two cores; can be resumed)
	@$(BIN)/tokencover pebble train --out pebble-training --resume

clean: ## remove everything that was made
	rm -rf $(VENV) demo
