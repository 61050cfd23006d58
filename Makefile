# Each target works on a machine with python3 (3.11 or 3.12) and make alone: the first one makes .venv.
# Another Python in an environment of its own: make test PYTHON=python3.12 VENV=.venv312
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.windfall-installed

.PHONY: help demo docs wheel test test312 lint format bench conformance clean
help:
	@echo "make demo         a block, an MLP, and a GPT-2 that learns and writes: eager against windfall"
	@echo "make test         the tests"
	@echo "make test312      the same on Python 3.12, in .venv312 (PYTHON312= says which)"
	@echo "make lint         ruff, its formatter and mypy"
	@echo "make bench        calls, compiling, models, memory and kernels, against eager and torch.compile"
	@echo "make docs         the documentation as a site, in site/ (in an environment of its own)"
	@echo "make conformance  sweeps over many programs and ops (long)"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info[:2] in ((3, 11), (3, 12)) else "windfall needs Python 3.11 or 3.12")'
	$(PYTHON) -m venv $(VENV)

# torch comes first and by exactly this requirement: pip may then take a CPU-only build where the
# machine offers one, and what comes after finds it satisfied.
$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install torch==2.13.0
	$(BIN)/python -m pip install -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python examples/demo.py

# Passive waiting: on a busy machine torch's spinning OpenMP threads slow everything down. Two
# processes, which take tests from each other; JOBS=0 runs them in this one.
JOBS ?= 2
test: $(STAMP)
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m "not conformance" -n $(JOBS) --dist worksteal

PYTHON312 ?= python3.12
test312:
	$(MAKE) test PYTHON=$(PYTHON312) VENV=.venv312

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
	$(BIN)/python -m benchmarks writes --json benchmarks/results/writes.json
	$(BIN)/python -m benchmarks higher --json benchmarks/results/higher.json
	$(BIN)/python -m benchmarks functions --json benchmarks/results/functions.json
	$(BIN)/python -m benchmarks step --json benchmarks/results/step.json
	$(BIN)/python -m benchmarks trees --json benchmarks/results/trees.json
	$(BIN)/python -m benchmarks kernels --quick --json benchmarks/results/kernels.json

# MkDocs needs neither torch nor windfall: what the pages show is run by the tests.
DOCS ?= .venv-docs
$(DOCS)/bin/mkdocs: pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install -q "mkdocs-material>=9.6,<10"

docs: $(DOCS)/bin/mkdocs
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

conformance: $(STAMP)
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m conformance

clean:
	rm -rf $(VENV) $(DOCS) site build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
