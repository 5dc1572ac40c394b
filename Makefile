# make book | test | bench | experiments | lint | lock | clean
# Each target first brings the environment in .venv up to date with requirements.lock; nothing but
# Python >= 3.11 and the package index is needed.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# an installed uv if there is one, else the copy that pip puts into .venv
UV = $$(command -v uv || echo $(BIN)/uv)

.PHONY: book test bench experiments lint lock clean

book: $(READY)
	$(BIN)/python -m book.build

test: lint
	$(BIN)/python -m pytest

bench: $(READY)
	$(BIN)/python -m pytest tests/benchmarks --override-ini=addopts=--strict-markers --benchmark-only

experiments: $(READY)
	$(BIN)/python -m book.experiments

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lock: $(READY)
	$(UV) pip compile pyproject.toml --group dev --universal --generate-hashes -o requirements.lock

clean:
	rm -rf _build .pytest_cache .ruff_cache .hypothesis .benchmarks

# The newest Python that numba supports and that can make environments; override with PYTHON=...
$(READY): requirements.lock pyproject.toml
	@python=""; \
	for candidate in $(or $(PYTHON),python3.14 python3.13 python3.12 python3.11 python3 python); do \
	  if $$candidate -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "No Python >= 3.11 with the venv module was found (tried $(or $(PYTHON),python3.14 ... python3.11, python3, python))." >&2; \
	  echo "Install one (Debian: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; \
	  exit 1; \
	fi; \
	echo "environment: $(VENV), $$($$python --version)"; \
	$$python -m venv --clear $(VENV)
	@command -v uv >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(UV) pip install --python $(BIN)/python --require-hashes -r requirements.lock
	$(UV) pip install --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@
