# Works with GNU make 3.81 and a POSIX shell. `make` alone lists the targets.

VENV := .venv
STAMP := $(VENV)/.stamp
BIN := $(VENV)/bin

# Each candidate is tried, because some shims named after a version cannot run it.
IS_NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	if "$$p" $(IS_NEW_ENOUGH) >/dev/null 2>&1; then echo "$$p"; break; fi; done)
UV ?= $(shell command -v uv 2>/dev/null)

# Without cached bytecode a process takes three times as long to start, and the tests start thousands.
export PYTHONDONTWRITEBYTECODE =

DEMO_ARGS ?=
PYTEST_ARGS ?=
LOCK_ARGS ?=

.PHONY: help setup demo test test-long lint format docs bench lock clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' Makefile

# $(call install,FILES): installs the packages of those lock files and the project into .venv. If there is no uv, pip
# installs the locked one; if that fails to install the rest (it does not read pip's settings), pip does.
define install
@python="$(PYTHON)"; \
if ! "$${python:-none}" $(IS_NEW_ENOUGH) >/dev/null 2>&1; then \
	echo "make: needs Python 3.11 or newer, found $${python:-none}." >&2; \
	echo "Install one, or name it: make setup PYTHON=/path/to/python3.11" >&2; \
	exit 1; \
fi; \
uv="$(UV)"; \
echo "Installing into $(VENV) ..."; \
set -e; \
if [ -n "$$uv" ]; then \
	$(BIN)/python $(IS_NEW_ENOUGH) >/dev/null 2>&1 || "$$uv" venv --quiet --clear --python "$$python" $(VENV); \
	"$$uv" pip sync --quiet --python $(BIN)/python --require-hashes $(1); \
	"$$uv" pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .; \
else \
	$(BIN)/python -m pip --version >/dev/null 2>&1 || "$$python" -m venv --clear $(VENV); \
	pip="$(BIN)/python -m pip install --quiet --disable-pip-version-check"; \
	awk '/^uv==/ { found = 1 } found { print } found && !/\\$$/ { exit }' requirements-dev.txt >$(VENV)/uv.txt; \
	$$pip --require-hashes -r $(VENV)/uv.txt 2>/dev/null && \
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes $(addprefix -r ,$(1)) 2>/dev/null || \
	$$pip --require-hashes $(addprefix -r ,$(1)); \
	$$pip --no-deps --no-build-isolation -e .; \
fi
endef

setup: $(STAMP) ## build .venv from the lock (PYTHON=... chooses the interpreter)

$(STAMP): pyproject.toml requirements-dev.txt
	$(call install,requirements-dev.txt)
	@touch $@

# Running the program needs half of the packages that development needs, so the demo installs only those.
RUN_LOCKS := deploy/container/requirements.txt deploy/container/build-requirements.txt

$(VENV)/.run-stamp: pyproject.toml $(RUN_LOCKS)
	$(call install,$(RUN_LOCKS))
	@touch $@

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(VENV)/.run-stamp) ## scrape four simulated counties into demo_data (DEMO_ARGS=--stay keeps the dashboard up)
	@rm -rf demo_data
	@$(BIN)/parcelpost demo --dir demo_data $(DEMO_ARGS)

# Two more than there are processors, because many tests mostly wait for other processes.
TEST_PROCESSES ?= $$($(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 2)')

PYTEST := $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadgroup

LINT := $(BIN)/ruff check . && $(BIN)/ruff format --check . && exec $(BIN)/mypy

# Style and types are checked in the background, in the time that the tests leave idle, and reported after them. Background
# processes of a shell ignore Ctrl-C, so the trap ends the check.
test: setup ## run the tests and check style and types (PYTEST_ARGS='-k name' runs some of them)
	@report=$$(mktemp); \
	nice sh -c '$(LINT)' >"$$report" 2>&1 & lint=$$!; \
	trap 'kill $$lint 2>/dev/null; rm -f "$$report"' EXIT; \
	trap 'exit 130' INT; trap 'exit 143' TERM; \
	$(PYTEST) $(PYTEST_ARGS); tests=$$?; \
	wait $$lint; style=$$?; \
	echo "Style and types:"; cat "$$report"; \
	[ "$$tests" -eq 0 ] && [ "$$style" -eq 0 ]

SEED ?= $$(date +%s)

test-long: setup ## run long fuzzing, chaos and property tests (SEED=... repeats a run)
	@seed=$(SEED); echo "make test-long SEED=$$seed repeats this run"; \
	TEST_SEED=$$seed $(PYTEST) -m 'long or hypothesis' --hypothesis-profile long --hypothesis-seed "$$seed" \
		$(PYTEST_ARGS)

lint: setup ## check style and types
	$(LINT)

format: setup ## format the sources and fix what the linter can fix
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

docs: setup ## generate the reference pages and Grafana's dashboard from the code
	$(BIN)/python -m docs.reference
	$(BIN)/python -m deploy.grafana.dashboard

bench: setup ## run a short benchmark of the store and its peers
	$(BIN)/python -m bench store --quick

lock: ## update the lock files (LOCK_ARGS=--upgrade for newer versions; needs uv)
	@[ -n "$(UV)" ] || { echo "make lock: needs uv (pip install uv)" >&2; exit 1; }
	"$(UV)" pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra dev --extra bench \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
		$(LOCK_ARGS) pyproject.toml -o requirements-dev.txt
	"$(UV)" pip compile --quiet --universal --python-version 3.11 --generate-hashes --constraints requirements-dev.txt \
		--extra browser --extra export --extra firestore --extra gateway --extra postgres \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" \
		pyproject.toml -o deploy/container/requirements.txt
	echo hatchling | "$(UV)" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--constraints requirements-dev.txt --no-emit-index-url --no-emit-find-links --no-annotate \
		--custom-compile-command "make lock" - -o deploy/container/build-requirements.txt

clean: ## remove .venv, caches, builds and the demo's files
	rm -rf $(VENV) demo_data .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
