# Each target works on a machine with python3 (3.11 or later) and make alone: the first one makes .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.windfall-installed

.PHONY: help demo test lint format bench conformance clean
help:
	@echo "make demo         a block, an MLP, and a GPT-2 that learns and writes: eager against windfall"
	@echo "make test         the tests"
	@echo "make lint         ruff, its formatter and mypy"
	@echo "make bench        calls, compiling, models, memory and kernels, against eager and torch.compile"
	@echo "make conformance  sweeps over many programs and ops (long)"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("windfall needs Python 3.11 or later" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# torch comes first and by exactly this requirement: pip may then take a CPU-only build where the
# machine offers one, and what comes after finds it satisfied.
$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install torch==2.13.0
	$(BIN)/python -m pip install -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python examples/demo.py

# Passive waiting: on a busy machine torch's spinning OpenMP threads slow everything down.
test: $(STAMP)
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m "not conformance"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks overhead --json benchmarks/results/overhead.json
	$(BIN)/python -m benchmarks compile --json benchmarks/results/compile.json
	$(BIN)/python -m benchmarks models --json benchmarks/results/models.json
	$(BIN)/python -m benchmarks stages --json benchmarks/results/stages.json
	$(BIN)/python -m benchmarks kernels --quick --json benchmarks/results/kernels.json

conformance: $(STAMP)
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m conformance

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
