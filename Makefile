# Four commands; each sets up what it needs on a machine that has Python 3.11, pip, gcc and make, and reuses it afterwards.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Idle OpenMP threads that spin make two busy processes many times slower; this must be set before torch is imported.
export OMP_WAIT_POLICY := passive

test: export OMP_NUM_THREADS := 1  # the tests run in as many processes as there are cores

.PHONY: demo test check bench web clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/labelloop demo

test: $(READY)
	$(BIN)/python -m pytest --numprocesses auto

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_architecture.py

bench: $(READY)
	$(BIN)/python benchmarks/augmentation.py
	$(BIN)/python benchmarks/overhead.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/step_cost.py

web:  # the chart library inside reports, built anew from the npm registry; its versions stand in web/package.json
	cd web && npm install --no-package-lock --no-audit --no-fund && node build.mjs

clean:
	rm -rf $(VENV) build src/*.egg-info
