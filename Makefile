# make demo      train the demonstration and translate a sentence with it
# make lint      ruff and mypy
# make test      lint, type-check, test (minutes; nothing needed but what it installs)
# make test-all  besides that the slow tests, the comparisons with PyTorch and CuPy, and the branches that tests cover
# make mutants   change the code in a thousand places, one at a time: some test must notice each (long)
# make bench     speed and memory beside those of PyTorch and CTranslate2, in turns (long; leave the machine alone)
# make docs      build the documentation as a site: open build/site/index.html
# make check-gpu the tests that need a CUDA device (and CuPy: pip install -e ".[cuda12]" or "[cuda13]")
# make clean     remove .venv, build and runs, with all trained models

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test test-all docs mutants bench check-gpu lint clean
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet -e .
	touch $@

$(VENV)/installed-for-tests: pyproject.toml | $(BIN)/python
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
	$(BIN)/python -m pytest -n auto -m "not slow and not gpu" --ignore=tests/oracles

test-all: lint $(VENV)/installed-oracles
	$(BIN)/python -m pytest -n auto -m "not gpu" --cov=autograd --cov=minitransformer --cov-branch --cov-fail-under=95

docs: $(VENV)/installed-for-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo build/site/index.html

mutants: $(VENV)/installed-mutants
	$(BIN)/python tests/mutants.py

bench: $(VENV)/installed-for-bench
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/training.py --bf16
	$(BIN)/python benchmarks/translation.py
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/input.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/sums.py
	$(BIN)/python benchmarks/communication.py
	$(BIN)/python benchmarks/saving.py

check-gpu: $(VENV)/installed-for-tests
	$(BIN)/python -m pytest -m gpu

clean:
	rm -rf $(VENV) build runs
