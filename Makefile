# Everything needed goes into the project's own folders: .boot (uv), .venv (Python), web/node_modules.
PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 2026
SEEDS ?= 4
FAULTS ?= 120
SECONDS ?= 60
EXAMPLES ?= 500
TARGETS ?=
SANDBOX_PYTHON ?= $(shell PATH=/usr/local/bin:/usr/bin:/bin command -v python3)
RUN_EXTRAS := acp anthropic ddgs deepseek google mcp ollama
EXTRAS ?=
UV := .boot/bin/uv
BIN := .venv/bin
UV_VERSION := 0.13.7
WEB_SOURCES := $(shell find web -path web/node_modules -prune -o -type f -print 2>/dev/null)
STATIC := src/deerflow/gateway/static/index.html

export UV_PYTHON_DOWNLOADS := never
unexport UV_PYTHON VIRTUAL_ENV

.DEFAULT_GOAL := help
.PHONY: help install run skills test check bench chaos fuzz lock reference clean

help: ## Show the commands.
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

install: .venv/.run page ## Install everything that running needs, and build the page (EXTRAS="postgres tokens" adds those).
	@test -z "$(EXTRAS)" || $(BIN)/deerflow install $(EXTRAS)

run: announce install ## Serve API and page on http://127.0.0.1:2026 (HOST and PORT override).
	@echo "Starting DeerFlow"
	@$(BIN)/deerflow serve --host $(HOST) --port $(PORT)

# Compiled packages fit one version of Python: the one that commands in the sandbox find.
skills: $(UV) ## Install what the scripts of the shipped skills need, for commands in the sandbox (about 300 MB).
	$(UV) pip install --quiet --compile-bytecode --python $(SANDBOX_PYTHON) --target skills/public/.packages --only-binary :all: -r requirements/skills.lock
	@echo "Scripts of the shipped skills find their packages in skills/public/.packages."

.PHONY: announce
announce:
	@echo "DeerFlow will be at http://$(HOST):$(PORT), page and API; what is missing is installed first."

test: .venv/.dev page ## Set up everything and run all tests.
	@$(BIN)/python scripts/prepare_tests.py
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

check: .venv/.dev ## Lint, types, layers, walk of a run, generated reference.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/unit/test_layers.py tests/unit/test_spine.py
	$(BIN)/python scripts/generate_reference.py --check

bench: .venv/.dev ## Run the benchmarks: one JSON line each, exit 1 on a miss.
	@$(BIN)/python -m benchmarks

chaos: .venv/.dev ## Kill and stop processes under load on each database (SEEDS, FAULTS override); exit 1 on a violation.
	@PYTHONPATH=tests $(BIN)/python -m chaos --seeds $(SEEDS) --faults $(FAULTS)

fuzz: .venv/.dev ## Send random input to every parser and route (SECONDS each, EXAMPLES a seed, TARGETS="patches mcp"); exit 1 on a find.
	@PYTHONPATH=tests $(BIN)/python -m fuzz --seconds $(SECONDS) --examples $(EXAMPLES) $(TARGETS)

lock: $(UV) ## Compile the locks anew from pyproject.toml and requirements/skills.in.
	$(UV) pip compile -q pyproject.toml --group dev --generate-hashes --no-header --no-annotate --python $(PYTHON) -o requirements/dev.lock
	$(UV) pip compile -q pyproject.toml $(RUN_EXTRAS:%=--extra %) --generate-hashes --no-header --no-annotate --python $(PYTHON) -c requirements/dev.lock -o requirements/run.lock
	$(UV) pip compile -q requirements/skills.in --generate-hashes --no-header --no-annotate --python $(PYTHON) -c requirements/dev.lock -o requirements/skills.lock

reference: .venv/.dev ## Write the generated reference anew.
	$(BIN)/python scripts/generate_reference.py

clean: ## Remove everything that install made; your data in .deer-flow stays.
	rm -rf .boot .venv web/node_modules src/deerflow/gateway/static

$(UV):
	@echo "Installing uv, the package installer, into .boot/"
	@$(PYTHON) -m venv .boot
	@.boot/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# Its configuration stands for the environment: bin/python is a link to a file with a date of its own.
.venv/pyvenv.cfg: | $(UV)
	@$(UV) venv --quiet --python $(PYTHON) .venv

# A marker says which lock the environment was made from; the larger set serves both. Extras that were added
# by `deerflow install` are added again to an environment that is made anew.
.venv/.run: .venv/pyvenv.cfg requirements/run.lock pyproject.toml
	@test .venv/.dev -nt requirements/dev.lock -a .venv/.dev -nt pyproject.toml || { \
	  echo "Installing DeerFlow's Python packages into .venv/ (the first time this downloads about 100)"; \
	  $(UV) pip sync --quiet --python .venv/bin/python requirements/run.lock && \
	  $(UV) pip install --quiet --python .venv/bin/python --no-deps --editable . && \
	  { test ! -s .venv/.extras || $(BIN)/deerflow install $$(cat .venv/.extras); } ; }
	@touch $@

.venv/.dev: .venv/pyvenv.cfg requirements/dev.lock requirements/skills.lock pyproject.toml
	@echo "Installing DeerFlow's Python packages, with those for tests, into .venv/"
	@$(UV) pip sync --quiet --python .venv/bin/python requirements/dev.lock requirements/skills.lock
	@$(UV) pip install --quiet --python .venv/bin/python --no-deps --editable .
	@touch $@ .venv/.run

.PHONY: page
page:
	@if command -v npm >/dev/null 2>&1; then $(MAKE) --silent --no-print-directory $(STATIC); \
	else echo "The page needs Node.js 20.19 or newer with npm (https://nodejs.org); serving the API without it."; fi

$(STATIC): $(WEB_SOURCES)
	@echo "Installing the page's packages into web/node_modules/"
	@cd web && npm ci --no-audit --no-fund --loglevel=error
	@echo "Building the page in web/"
	@cd web && npm run --silent build
	@touch $@
