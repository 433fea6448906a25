# Each command sets up what it needs on a machine that has Python 3.11 or newer, pip, gcc and make, and reuses it afterwards.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Idle OpenMP threads that spin make two busy processes many times slower; this must be set before torch is imported.
export OMP_WAIT_POLICY := passive

unexport PYTHONDONTWRITEBYTECODE  # many tests start a process, which would compile everything anew

# Where public data sets are, unless that is said already (docs/datasets.md).
export LABELLOOP_DATA ?= $(wildcard ../shared/data)

test quick coverage docs: export OMP_NUM_THREADS := 1  # the tests run in as many processes as there are cores

.PHONY: demo test quick check docs bench bench-methods torture dist coverage matrix browser screenshots web clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[dev]'
	touch $@

$(VENV)/.docs: $(READY)
	$(PIP) --editable '.[docs]'
	touch $@

demo: $(READY)
	$(BIN)/labelloop demo

test: $(READY)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder -m "not page and not torture"

# An answer in under a minute on two cores: all tests that are not marked as slow.
quick: $(READY)
	$(BIN)/python -m pytest --numprocesses auto -m "not slow and not page"

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_architecture.py

# The site, strict about links; and every command and all code of its pages and of the README, run as they stand.
# The site is built beside the tests; the demo takes as long as half of the pages, so it comes first.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet & site=$$!; \
	$(BIN)/python -m pytest --numprocesses auto --maxschedchunk 1 -m page \
		tests/cli/test_cli_demo.py tests/test_docs.py tests/test_readme.py; tests=$$?; \
	wait $$site && exit $$tests
	@echo "build/site/index.html"

# Speed and memory side by side, each target met or missed: minutes on a quiet machine. SIZE=full takes an hour.
bench: $(READY)
	$(BIN)/python benchmarks/performance.py --size $(or $(SIZE),quick)
	$(BIN)/python benchmarks/performance_page.py

# Every command killed and failed at every event of writing, flipped bits, damaged files, lock races: an hour; then its page.
torture: $(READY)
	$(BIN)/python tests/torture/torture.py --output evidence/torture.json
	$(BIN)/python benchmarks/reliability_page.py

# What a step of each method costs beside one of cross-entropy, and augmentation in a batch beside a loop.
bench-methods: $(READY)
	$(BIN)/python benchmarks/augmentation.py
	$(BIN)/python benchmarks/overhead.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/step_cost.py

# A real browser and axe-core for tests/browser, which are skipped without: Debian's chromium and its driver.
browser:
	command -v chromium && command -v chromedriver || (apt-get update -qq; apt-get install -y -qq chromium chromium-driver)
	cd web && npm install --no-package-lock --no-audit --no-fund

screenshots: $(READY)
	$(BIN)/python benchmarks/screenshots.py

web:  # the chart library inside reports, built anew from the npm registry; its versions stand in web/package.json
	cd web && npm install --no-package-lock --no-audit --no-fund && node build.mjs

# A wheel, installed in an environment that has none of our sources, in which the demo runs.
dist: $(READY)
	.ci/dist

# Fails below the floor that pyproject.toml sets (fail_under).
coverage: $(READY)
	$(BIN)/coverage run -m pytest -m "not page and not torture"
	$(BIN)/coverage report

# The oldest and the newest dependencies that pyproject.toml allows, each in an environment of its own.
matrix: $(READY)
	.ci/matrix

clean:
	rm -rf $(VENV) build dist src/*.egg-info
