# docmill. `make` alone prints this help.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
# Compiled once, not by each of the processes that run tests, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=
.PHONY: test-fast test-long chaos soak audit help setup demo serve check format fuzz test screenshots messages goldens bench bench-quality bench-peers pins clean

help: ## Print this help
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## Install docmill and everything its tests need into .venv

$(VENV)/.python:
	tools/make-venv $(PYTHON) $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.python requirements.txt pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-build.txt
	tools/install $(VENV) requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q src  # an environment may forbid each start to keep what it compiled
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.txt
	tools/install $(VENV) requirements-dev.txt
	@touch $@

demo: $(VENV)/.run ## Show a run from end to end: a service, the samples, their twins
	$(BIN)/docmill demo

serve: $(VENV)/.run ## Run the service on 127.0.0.1:8321
	$(BIN)/docmill serve

check: $(VENV)/.dev ## Formatter, linter, strict types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

fuzz: $(VENV)/.dev ## Schemathesis over the whole OpenAPI for five minutes, with and without a credential
	DOCMILL_FUZZ_SECONDS=150 $(BIN)/python -m pytest tests/journeys/test_openapi.py -s

format: $(VENV)/.dev ## Format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# More processes than cores: many tests wait for something.
PYTEST := $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test-fast: $(VENV)/.dev ## Rules, contracts, dialects and the database on SQLite, without any server: a minute at most
	$(PYTEST) tests/contract tests/unit/contracts tests/unit/dialects tests/unit/test_*.py -m "not server and not slow"

test: $(VENV)/.dev ## Run the tests, on real PostgreSQL, Redis, S3 and Chromium
	-@$(BIN)/python tests/support/servers/debian.py
	-@PYTHONPATH=tests $(BIN)/python -m support.servers.node
	$(PYTEST) --durations 30 -m "not long"

test-long: $(VENV)/.dev ## Walk the longest journeys once more, distributed and with more kills
	$(PYTEST) -m long

CHAOS_SEEDS ?= 1,2,3
CHAOS := $(BIN)/python -m bench.chaos
chaos: $(VENV)/.dev ## Kill what runs under the wide load, three seeds in both modes; upgrades, restores, failpoints; an hour
	$(CHAOS) --seeds $(CHAOS_SEEDS) --tasks 60 --kills 20 --quiet 0 --lease 4 --pause 0.5,1.5 --away 0,3
	$(CHAOS).upgrade
	$(CHAOS).restore
	$(CHAOS).simulation --seeds 1000
	$(CHAOS).model --backend all --steps 10000
	$(CHAOS).kills --kills 50
	$(CHAOS).stops --moments 60
	$(CHAOS).rotation
	$(CHAOS).failpoints --mode embedded --names
	$(CHAOS).failpoints --mode distributed --names

SOAK_MINUTES ?= 60
soak: $(VENV)/.dev ## Run the wide load for SOAK_MINUTES (60) in each mode: memory, descriptors, threads, rows and keys stay flat
	$(CHAOS).soak --minutes $(SOAK_MINUTES)

audit: $(VENV)/.dev ## Ask for known vulnerabilities of the pinned packages; needs the network
	$(BIN)/uv tool run pip-audit --strict --require-hashes --disable-pip -r requirements.txt
	$(BIN)/uv tool run pip-audit --strict --require-hashes --disable-pip -r requirements-dev.txt

screenshots: $(VENV)/.dev ## Make the pictures of the console in docs/images anew
	DOCMILL_SCREENSHOTS=1 $(BIN)/python -m pytest tests/browser -k every_page

goldens: $(VENV)/.dev ## Write the golden Markdown of the samples again; look at the diff before you commit it
	$(BIN)/python tests/golden/test_samples.py

messages: $(VENV)/.dev ## Collect the console's messages and compile their translations
	$(BIN)/python tools/messages.py

bench: $(VENV)/.dev ## Run the benchmarks against peers and limits, as ratios
	$(BIN)/python bench/contracts.py
	$(BIN)/python bench/latency.py
	$(BIN)/python bench/latency.py --distributed
	$(BIN)/python bench/tasks.py
	$(BIN)/python bench/overhead.py
	$(BIN)/python bench/pages.py
	$(BIN)/python bench/lists.py
	$(BIN)/python bench/objects.py
	$(BIN)/python bench/finals.py
	$(BIN)/python bench/callbacks.py
	$(BIN)/python bench/fanout.py

bench-quality: $(VENV)/.dev ## Quality and speed beside peers, on ../shared/corpus
	cd bench && ../$(BIN)/python -m quality --peers --plot $(QUALITY)

bench-peers: $(VENV)/.dev ## Install the peers of bench-quality, each into an environment of its own
	cd bench && ../$(BIN)/python -m quality --install

pins: ## Renew the pinned requirements (hashes, no addresses)
	$(BIN)/uv pip compile pyproject.toml --extra distributed --extra onedrive $(PIN_FLAGS) -o requirements.txt
	$(BIN)/uv pip compile pyproject.toml --extra distributed --extra onedrive --group dev -c requirements.txt $(PIN_FLAGS) -o requirements-dev.txt
	printf 'mineru==$(MINERU)\n' | $(BIN)/uv pip compile - $(PIN_FLAGS) -o requirements-mineru.txt
	printf 'mineru==$(MINERU_CLIENT)\n' | $(BIN)/uv pip compile - --no-deps $(PIN_FLAGS) -o requirements-mineru-client.txt
	printf 'editables\nhatchling\nuv\n' | $(BIN)/uv pip compile - -c requirements-dev.txt $(PIN_FLAGS) -o requirements-build.txt
MINERU := 4.0.12
MINERU_CLIENT := 3.4.5
PIN_FLAGS := --quiet --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links

clean: ## Remove what make made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
