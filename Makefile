# make demo      train the demonstration and translate a sentence with it
# make test      lint, type-check, test (minutes; nothing needed but what it installs)
# make test-all  besides that the slow tests and the comparisons with PyTorch
# make check-gpu the tests that need a CUDA device (and CuPy: pip install -e ".[cuda12]" or "[cuda13]")

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all check-gpu lint clean
.DELETE_ON_ERROR:

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/installed: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet -e .
	touch $@

$(VENV)/installed-for-tests: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet -e ".[mpi,test]"
	touch $@ $(VENV)/installed

$(VENV)/installed-oracles: $(VENV)/installed-for-tests
	$(BIN)/pip install --quiet -e ".[oracles]"
	touch $@

demo: $(VENV)/installed
	$(BIN)/minitransformer-train
	@echo
	@echo "the small dog sees three red houses"
	@echo "the small dog sees three red houses" | $(BIN)/minitransformer-translate

lint: $(VENV)/installed-for-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n auto -m "not slow and not gpu" --ignore=tests/oracles

test-all: lint $(VENV)/installed-oracles
	$(BIN)/python -m pytest -n auto -m "not gpu"

check-gpu: $(VENV)/installed-for-tests
	$(BIN)/python -m pytest -m gpu

clean:
	rm -rf $(VENV) runs
