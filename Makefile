# Commands for people, hooks and CI alike. A bare `make` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

# Where there is no uv it is kept here, for every checkout on the machine. Build output stays in the checkout: cargo takes two
# checkouts in one target folder for the same packages, and may use what the other one built.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/dataset-rt
export CARGO_TARGET_DIR ?= $(CURDIR)/target

UV := $(or $(shell command -v uv),$(CACHE)/uv/bin/uv)
export PATH := $(PATH):$(CACHE)/uv/bin

PYTHON := .venv/bin/python
PYTHON_VERSIONS := 3.10 3.11 3.12 3.13
MIN_PYTHONS ?= 2
PYTEST_ARGS ?=
BENCH_ARGS ?=

# One Polars serves all crates: cargo always gets the whole workspace, since a subset would ask for other features and compile
# it again. For the same reason PyO3 is told its interpreter: the one behind .venv, whatever PATH says.
CARGO = PYO3_PYTHON="$$($(PYTHON) -c 'import os, sys; print(os.path.realpath(sys.executable))')" cargo
# maturin copies the module out of the target folder; where checkouts share one, another may be about to replace it. And it tells
# PyO3 the path of its interpreter, with which all of Polars is compiled again when it changes: so that is a path beside the output.
BUILD_VENV = $(CARGO_TARGET_DIR)/venv
MATURIN = $(if $(shell command -v flock),flock "$(CARGO_TARGET_DIR)/maturin.lock") \
  sh -c 'ln -sfn "$(CURDIR)/.venv" "$(BUILD_VENV)" && VIRTUAL_ENV="$(BUILD_VENV)" exec .venv/bin/maturin "$$@"' maturin

# find_python VERSION...: print the first interpreter that runs as one of these versions: on PATH, known to uv, or kept by pyenv.
# (A pyenv shim may be on PATH and still refuse.)
define FIND_PYTHON
find_python() {
  local version candidate
  for version in "$$@"; do
    for candidate in "python$$version" "$$("$(UV)" python find --system --no-project "$$version" 2>/dev/null || true)" \
        "$${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version".*/bin/python; do
      "$$candidate" -c "import sys; assert '%d.%d' % sys.version_info[:2] == '$$version'; print(sys.executable)" 2>/dev/null \
        && return
    done
  done
  return 1
}
endef
export FIND_PYTHON

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

.PHONY: bootstrap
bootstrap: .venv/ready ## Make .venv with everything that building, testing and linting needs

.venv/ready: pyproject.toml | $(UV)
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust $$(sed -n 's/^rust-version = //p' Cargo.toml)" >&2; exit 1; }
	@eval "$$FIND_PYTHON"; \
	if ! $(PYTHON) -c '' 2>/dev/null; then \
	  rm -rf .venv; \
	  "$(UV)" venv --python "$$(find_python 3.11 3.13 3.12 || command -v python3)" .venv; \
	fi
	"$(UV)" pip install --python $(PYTHON) -r pyproject.toml --extra test --extra lint 'maturin>=1.14,<2'
	@"$(UV)" pip install --compile-bytecode --python $(PYTHON) -r pyproject.toml --extra torch --extra torch-test || \
	  if [ -n "$${DRT_NEED_TORCH:-}" ]; then exit 1; else echo "no PyTorch: its tests will be skipped" >&2; fi
	@touch $@

$(CACHE)/uv/bin/uv:
	python3 -m venv $(CACHE)/uv
	$(CACHE)/uv/bin/python -m pip install --quiet uv

.PHONY: build
build: .venv/ready ## Compile the native module (release) into .venv
	@mkdir -p "$(CARGO_TARGET_DIR)"
	$(MATURIN) develop --release --locked --uv

.PHONY: demo
demo: build ## Run the examples
	@folder="$$(mktemp -d)"; trap 'rm -rf "$$folder"' EXIT; \
	examples="quickstart digits"; \
	if $(PYTHON) -c 'import torch' 2>/dev/null; then examples="$$examples torch_training torch_distributed resume"; fi; \
	for example in $$examples; do \
	  echo "== examples/$$example.py"; \
	  $(PYTHON) examples/$$example.py "$$folder"; \
	done

.PHONY: test test-rust test-python
test: test-rust test-python ## Run all Rust and Python tests (PYTEST_ARGS="tests/unit -q" for a part of the latter)

test-rust: .venv/ready ## Run the Rust tests and doc tests
	@if cargo nextest --version >/dev/null 2>&1; then set -x; \
	  $(CARGO) nextest run --workspace --locked; \
	else set -x; \
	  $(CARGO) test --workspace --lib --bins --tests --locked; \
	fi
	$(CARGO) test --workspace --doc --locked

test-python: build ## Run the Python tests
	$(PYTHON) -m pytest $(PYTEST_ARGS)

.PHONY: oracle
oracle: build ## Run the tests that compare with the public package, in an environment made on first use
	$(PYTHON) tests/oracle/make_env.py
	DRT_NO_ORACLE= $(PYTHON) -m pytest -m oracle $(PYTEST_ARGS)

.PHONY: lint lint-rust lint-python
lint: lint-rust lint-python ## Check format, lints and types

lint-rust: .venv/ready ## Check rustfmt and clippy
	cargo fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

lint-python: build ## Check ruff, mypy, pyright, and the native module's stub
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy
	$(PYTHON) -m mypy.stubtest dataset_rt._native
	@if $(PYTHON) -m pyright --version >/dev/null 2>&1; then set -x; \
	  $(PYTHON) -m pyright --pythonpath $(PYTHON); \
	else \
	  echo "pyright skipped: it needs Node.js, and there is none"; \
	fi

# The module for the stable ABI serves 3.11 and later. It is built with the interpreter that `build` had, if that is one of them.
.PHONY: pythons
pythons: .venv/ready ## Run the quick tests on the other supported Pythons that are here, from wheels
	@rm -rf dist/pythons; mkdir -p dist/pythons "$(CARGO_TARGET_DIR)"
	@eval "$$FIND_PYTHON"; \
	own="$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')"; tested=("$$own"); \
	for version in $(PYTHON_VERSIONS); do \
	  if [ $$version = $$own ]; then echo "== Python $$version: in .venv, 'make test-python' runs everything on it"; continue; fi; \
	  if ! python="$$(find_python $$version)"; then echo "== Python $$version: skipped, not found"; continue; fi; \
	  echo "== Python $$version: $$python"; \
	  abi=abi3; builder="$(BUILD_VENV)/bin/python"; \
	  if [ $$version = 3.10 ]; then abi=cp310; fi; \
	  if [ $$version = 3.10 ] || [ $$own = 3.10 ]; then builder="$$python"; fi; \
	  if ! compgen -G "dist/pythons/*-$$abi-*.whl" >/dev/null; then \
	    $(MATURIN) build --release --locked --interpreter "$$builder" --out dist/pythons; \
	  fi; \
	  rm -rf .venv-$$version; \
	  "$(UV)" venv --quiet --python "$$python" .venv-$$version; \
	  "$(UV)" pip install --quiet --python .venv-$$version/bin/python dist/pythons/*-$$abi-*.whl pytest pytest-timeout; \
	  .venv-$$version/bin/python -m pytest -m quick; \
	  tested+=($$version); \
	done; \
	echo "Pythons: $${tested[*]} ($$own in .venv, the others with the quick tests)"; \
	if [ $${#tested[@]} -lt $(MIN_PYTHONS) ]; then \
	  echo "fewer than $(MIN_PYTHONS) versions; set MIN_PYTHONS to accept that" >&2; exit 1; \
	fi

.PHONY: docs
docs: build .venv/docs-ready ## Build the documentation into site/; any warning, broken link or missing docstring fails
	@rm -rf site
	$(PYTHON) -m sphinx -q -W --keep-going -b html -c docs/sphinx -d site/.doctrees . site
	@rm -rf site/.doctrees
	@echo "open site/index.html"

.venv/docs-ready: .venv/ready
	"$(UV)" pip install --python $(PYTHON) -r pyproject.toml --extra docs
	@touch $@

.PHONY: ci
ci: lint test pythons docs ## What CI runs: lint, test, pythons, docs

.PHONY: golden
golden: .venv/ready ## Decode the golden caches with a decoder of their own
	$(PYTHON) tests/golden/make_fixtures.py verify --out tests/golden

.PHONY: bench bench-rust
bench: build ## Compare with the public package and hand-written loops (BENCH_ARGS=--quick: two minutes)
	$(PYTHON) benchmarks/bench_core.py $(BENCH_ARGS)

bench-rust: .venv/ready ## Run the Rust benchmarks
	$(CARGO) bench --workspace --locked

.PHONY: fmt
fmt: .venv/ready ## Format everything and mend what ruff can
	cargo fmt --all
	$(PYTHON) -m ruff check --fix
	$(PYTHON) -m ruff format

.PHONY: hooks
hooks: .venv/ready ## Have git run the checks before each commit and push
	"$(UV)" pip install --python $(PYTHON) pre-commit
	$(PYTHON) -m pre_commit install --hook-type pre-commit --hook-type pre-push

.PHONY: clean
clean: ## Remove environments, wheels and caches of tools (cargo clean removes what Rust compiled)
	rm -rf .venv .venv-* dist site .hypothesis .mypy_cache .pytest_cache .ruff_cache python/dataset_rt/*.so
	find python tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} +
