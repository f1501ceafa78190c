# `make` lists the targets. Everything is installed into .venv and ui/node_modules; nothing outside this folder changes,
# except that `make venv` and `make test`, run as root on Debian, install python3-venv and Chromium when they are missing.
.DEFAULT_GOAL := help
.PHONY: help up kube controlplane venv ui check lint quick format test test-long mutants bench wheel dashboards lock clean

unexport PYTHONDONTWRITEBYTECODE # compiled files make every start and every test quicker

BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet
PAGE := src/kaiwo/api/static/index.html
UI_SOURCES := $(shell find ui -type f -not -path '*/node_modules/*' 2>/dev/null) $(wildcard src/kaiwo/api/views/*.py)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

up: venv ui ## Start Kaiwo on this machine; options in ARGS="--demo"
	@exec $(BIN)/kaiwo up $(ARGS)

kube: venv ui ## Start a real Kubernetes with virtual GPU nodes and Kaiwo; options in ARGS="--nodes 100"
	@tests/controlplane/build.sh >/dev/null
	@exec $(BIN)/python -m tests.controlplane.kube $(ARGS)

controlplane: ## Build that Kubernetes once, outside this folder, and print where (Go, about ten minutes)
	@tests/controlplane/build.sh || [ $$? = 3 ] # 3: it says what is missing here, and its tests are skipped

venv: .venv/stamps/kaiwo ## Make .venv with the locked packages and Kaiwo

ui: $(PAGE) ## Build the web page into the Python package

check: venv ## Format, lint, types, imports, fast tests: about two minutes
	@$(MAKE) --no-print-directory -j 2 lint quick

lint: venv
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

quick: venv
	KAIWO_TEST_SIZE=quick scripts/test.sh fast $(ARGS)

format: venv ## Format the code and mend what the linter can
	$(BIN)/ruff check --fix --exit-zero
	$(BIN)/ruff format

test: venv ui controlplane ## Run every test at CI size
	scripts/with-node.sh scripts/test.sh all $(ARGS)

test-long: venv ui controlplane ## Run every test with the full counts
	KAIWO_TEST_SIZE=full PYTEST_TIMEOUT=3000 scripts/with-node.sh scripts/test.sh all $(ARGS)

mutants: venv ## Count which small mistakes in the core the fast tests notice; options in ARGS="--count 40"
	$(BIN)/python -m tests.mutants $(ARGS)

bench: venv ## Run every benchmark, or those in ARGS="name"; results go to docs/benchmarks/
	$(BIN)/python -m bench $(ARGS)

wheel: venv ui ## Build the wheel and the sdist into dist/
	$(BIN)/hatchling build -d dist

dashboards: venv ## Write deploy/grafana again, with Grafana's own library
	$(BIN)/python scripts/dashboards.py

lock: venv ## Pin requirements/*.in again; newest versions with ARGS=--upgrade
	scripts/lock.sh $(ARGS)

clean: ## Remove everything that make made
	rm -rf .venv dist ui/node_modules $(dir $(PAGE)) .*_cache .hypothesis

.venv/pyvenv.cfg:
	scripts/venv.sh

.venv/stamps/locked: requirements/dev.txt | .venv/pyvenv.cfg
	$(PIP) --require-hashes --only-binary=:all: -r $<
	@mkdir -p $(@D) && touch $@

.venv/stamps/kaiwo: pyproject.toml .venv/stamps/locked
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(PAGE): ui/node_modules/.installed $(UI_SOURCES)
	$(BIN)/python scripts/page_types.py
	cd ui && ../scripts/with-node.sh npm run build
	@touch $@

ui/node_modules/.installed: ui/package.json ui/package-lock.json | .venv/stamps/kaiwo
	cd ui && ../scripts/with-node.sh npm ci --no-audit --no-fund
	@touch $@

ui/package.json ui/package-lock.json:
	@echo "$@ is missing, so the web page cannot be built" >&2; exit 1
