# Each target works on a machine with python3 (3.11 to 3.13) and make alone: the first one makes .venv.
# Another Python in an environment of its own: make test PYTHON=python3.12 VENV=.venv312
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.windfall-installed

.PHONY: help demo docs wheel test test312 matrix lint types format bench conformance clean
help:
	@echo "make demo         a block, an MLP, and a GPT-2 that learns and writes: eager against windfall"
	@echo "make test         the tests"
	@echo "make test312      the same on Python 3.12, in .venv312 (PYTHON312= says which)"
	@echo "make matrix       the same on each pair of torch and Python (PAIRS=); gigabytes each, one at a time"
	@echo "make lint         ruff, its formatter and mypy"
	@echo "make types        pyright's look at the examples: the public surface as users' editors see it"
	@echo "make bench        calls, compiling, models, memory and kernels, against eager and torch.compile"
	@echo "make docs         the documentation as a site, in site/ (in an environment of its own)"
	@echo "make conformance  sweeps over many programs and ops (long)"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info[:2] <= (3, 13) else "windfall needs Python 3.11, 3.12 or 3.13")'
	$(PYTHON) -m venv $(VENV)

# torch comes first and by exactly this requirement: pip may then take a CPU-only build where the
# machine offers one, and what comes after finds it satisfied. (The package itself takes 2.13 to 2.15;
# other versions are tried by `make matrix`.)
TORCH ?= 2.13.0
$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install torch==$(TORCH)
	$(BIN)/python -m pip install -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python examples/demo.py

# Passive waiting: on a busy machine torch's spinning OpenMP threads slow everything down. Two
# processes, which take tests from each other; JOBS=0 runs them in this one. Bytecode first: tests
# start many processes, and where PYTHONDONTWRITEBYTECODE is set each would compile windfall anew.
JOBS ?= 2
test: $(STAMP)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m compileall -q windfall
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m "not conformance" -n $(JOBS) --dist worksteal

PYTHON312 ?= python3.12
test312:
	$(MAKE) test PYTHON=$(PYTHON312) VENV=.venv312

# Each pair of torch and Python in an environment of its own, which is removed after it; what came
# out is in matrix.txt (docs/support.md has the table). A pair that fails does not end the others.
PAIRS ?= 2.13.0:3.11 2.13.0:3.12 2.13.0:3.13 2.14.0:3.12 2.15.0:3.11 2.15.0:3.13
matrix:
	@rm -f matrix.txt; failed=0; for pair in $(PAIRS); do \
	  torch=$${pair%%:*}; python=$${pair##*:}; venv=.venv-$$torch-$$python; \
	  if $(MAKE) --no-print-directory test PYTHON=python$$python VENV=$$venv TORCH=$$torch > $$venv.log 2>&1; \
	  then said=passed; else said=FAILED; failed=1; fi; \
	  echo "$$(date -u +%F) torch $$torch, Python $$python, $$said: $$(tail -1 $$venv.log)" | tee -a matrix.txt; \
	  rm -rf $$venv; \
	done; exit $$failed

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

# The checker in an environment of its own (basedpyright brings its node along); torch is found in ours.
TYPES ?= .venv-types
$(TYPES)/bin/basedpyright: | $(STAMP)
	$(PYTHON) -m venv $(TYPES)
	$(TYPES)/bin/python -m pip install -q "basedpyright>=1.40,<2"

types: $(TYPES)/bin/basedpyright
	$(TYPES)/bin/basedpyright --pythonpath $(BIN)/python --level error examples

conformance: $(STAMP)
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m conformance

clean:
	rm -rf $(VENV) $(DOCS) $(TYPES) site build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
