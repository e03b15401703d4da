# make demo      train the demonstration and translate a sentence with it
# make lint      ruff and mypy
# make test      lint, type-check, test (minutes; nothing needed but what it installs)
# make test-all  besides that the slow tests, the comparisons with PyTorch and CuPy, and the branches that the quick tests cover
# make test-lowest  the quick tests with the oldest versions of all dependencies (minutes)
# make mutants   change the code in a thousand places, one at a time: some test must notice each (long)
# make bench     speed and memory beside those of PyTorch and CTranslate2, in turns (long; leave the machine alone)
# make docs      build the documentation as a site: open build/site/index.html
# make check-gpu the tests that need a CUDA device (and CuPy: pip install -e ".[cuda12]" or "[cuda13]")
# make clean     remove .venv, build and runs, with all trained models

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
QUICK_TESTS = $(BIN)/python -m pytest -n auto -m "not slow and not gpu" --ignore=tests/oracles
VERSION := import sys; print("%d.%d" % sys.version_info[:2])
MADE_BY := $(shell sed -n 's/^version[a-z_]* = \([0-9]*\.[0-9]*\).*/\1/p' $(VENV)/pyvenv.cfg 2>/dev/null)
STARTS := $(shell grep -qF '$(CURDIR)/$(VENV)' $(BIN)/activate && $(BIN)/python -c '$(VERSION)' 2>/dev/null)
WANTED := $(if $(filter file,$(origin PYTHON)),$(MADE_BY),$(shell $(PYTHON) -c '$(VERSION)' 2>/dev/null))

.PHONY: help demo test test-all test-lowest docs mutants bench check-gpu lint clean
## .venv is made again if another Python is named than the one that made it, if that has been replaced, or if it was moved
ifneq ($(MADE_BY) $(MADE_BY),$(STARTS) $(WANTED))
.PHONY: $(VENV)/pyvenv.cfg
endif
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile

$(VENV)/pyvenv.cfg:
	@command -v $(PYTHON) >/dev/null || { echo "error: there is no $(PYTHON): install Python 3.11 or newer, or name one: make demo PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit("error: $(PYTHON) is Python %d.%d; 3.11 or newer is needed: make demo PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "error: $(PYTHON) cannot make virtual environments: sudo apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

$(VENV)/installed: pyproject.toml $(VENV)/pyvenv.cfg
	$(BIN)/pip install --quiet -e .
	touch $@

$(VENV)/installed-for-tests: pyproject.toml $(VENV)/pyvenv.cfg
	$(BIN)/pip install --quiet -e ".[mpi,test]"
	touch $@ $(VENV)/installed

$(VENV)/installed-oracles: $(VENV)/installed-for-tests
	$(BIN)/pip install --quiet -e ".[oracles,docs]"
	touch $@

$(VENV)/installed-for-docs: $(VENV)/installed
	$(BIN)/pip install --quiet -e ".[docs]"
	touch $@

$(VENV)/installed-mutants: $(VENV)/installed-for-tests
	$(BIN)/pip install --quiet -e ".[mutants]"
	touch $@

$(VENV)/installed-for-bench: $(VENV)/installed-for-tests
	$(BIN)/pip install --quiet -e ".[bench]"
	touch $@

demo: $(VENV)/installed
	$(BIN)/minitransformer-train
	@echo
	@echo "The small dog sees three red houses."
	@echo "The small dog sees three red houses." | $(BIN)/minitransformer-translate

lint: $(VENV)/installed-for-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(QUICK_TESTS)

test-all: lint $(VENV)/installed-oracles
	$(QUICK_TESTS) --cov=autograd --cov=minitransformer --cov-branch --cov-fail-under=95
	$(BIN)/python -m pytest -n auto -m "slow and not gpu"

## starlette's client of tests needed httpx before httpx2; old packages meet deprecations in the newer ones that they need
test-lowest: build/lowest/installed
	build/lowest/bin/python -m pytest -n auto -m "not slow and not gpu" --ignore=tests/oracles -W ignore::DeprecationWarning

build/lowest/installed: pyproject.toml tests/lowest.txt
	$(PYTHON) -m venv --clear build/lowest
	build/lowest/bin/pip install --quiet --constraint tests/lowest.txt -e ".[mpi,test]" httpx
	touch $@

docs: $(VENV)/installed-for-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo build/site/index.html

mutants: $(VENV)/installed-mutants
	$(BIN)/python tests/mutants.py

bench: $(VENV)/installed-for-bench
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/training.py --bf16
	$(BIN)/python benchmarks/translation.py
	$(BIN)/python benchmarks/costs.py python
	$(BIN)/python benchmarks/costs.py input
	$(BIN)/python benchmarks/costs.py exchange
	$(BIN)/python benchmarks/costs.py checkpoint base

check-gpu: $(VENV)/installed-for-tests
	$(BIN)/python -m pytest -m gpu

clean:
	rm -rf $(VENV) build runs
