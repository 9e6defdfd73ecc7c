# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: help env demo test lint format bench clean

help: ## what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/'

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

demo: $(STAMP) ## cover a picture, offline, and draw what was kept
	@$(BIN)/python examples/cover_a_picture.py --out demo

test: $(STAMP) ## everything that must pass
	@echo "==> running the tests"
	@$(BIN)/python -m pytest

lint: $(STAMP) ## style, types and the direction of imports
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "==> mypy --strict"
	@$(BIN)/mypy
	@echo "==> import-linter"
	@$(BIN)/lint-imports

format: $(STAMP) ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP) ## how fast the selection is, as ratios within one run
	@$(BIN)/python benchmarks/selection.py

clean: ## remove everything that was made
	rm -rf $(VENV) demo
