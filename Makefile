# One command each: demo, test, test-slow, gate, bench, vast-emulator, lint. Everything is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/pp-smoke-run
PYTEST := $(BIN)/python -m pytest

.PHONY: help demo test test-slow test-lab gate bench swim-table vast-emulator lint model clean

help:
	@echo "make demo       install and serve a prompt through 5 local stages"
	@echo "make test       every test that needs no GPU and no money"
	@echo "make test-slow  more models, more stages, more faults"
	@echo "make test-lab   chains across networks of namespaces, with faults; needs root"
	@echo "make gate       the pre-deploy gate alone: real binaries, real model, N = 2, 3, 5"
	@echo "make bench      measure speed, start, memory; BENCH='--quick', BENCH='--llama-rpc DIR' and more"
	@echo "make swim-table simulate how soon membership notices a death and how often it errs; half an hour of one core"
	@echo "make vast-emulator  a vast.ai of your own on port 8080 (EMULATOR='--port N': another); its machines are processes here"
	@echo "make lint       ruff and mypy"

$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("pp-smoke-run needs Python 3.11 or newer; try make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@echo "installing pp-smoke-run and what it needs into $(VENV); this takes a while"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Minutes to build, from its source; PP_REFERENCE_PYTHON may name a Python that has it instead.
$(VENV)/installed-reference: $(VENV)/installed-dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[reference]' && touch $@ \
		|| echo "llama.cpp was not built (it needs a C++ compiler); the tests that compare with it will be skipped" >&2

model: $(VENV)/installed
	$(RUN) models fetch smollm2:135m

demo: $(VENV)/installed
	$(RUN) --seed --num-stages 5 --prompt "Say hello" --verify

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What bounds the time in which a fault is noticed, or fills both cores, has the machine to itself; the rest shares it.
APART := tests/cluster tests/e2e tests/edges tests/files tests/membership/test_*.py tests/stage tests/transport tests/netlab
SHARED := -n 2 --dist loadfile $(APART:%=--ignore-glob=%) tests/vast tests
test: $(VENV)/installed-dev model
	$(PYTEST) -m "not slow" $(SHARED)
	$(PYTEST) -m "not slow" $(APART)

test-slow: $(VENV)/installed-dev $(if $(PP_REFERENCE_PYTHON),,$(VENV)/installed-reference) model
	$(PYTEST) -m slow $(SHARED)
	$(PYTEST) -m slow $(APART)

test-lab: $(VENV)/installed-dev model
	$(PYTEST) tests/netlab

gate: $(VENV)/installed-dev model
	$(PYTEST) -m "gate and not slow" tests/e2e

bench: $(VENV)/installed model
	$(BIN)/python -m bench $(BENCH)

swim-table: $(VENV)/installed
	$(BIN)/python bench/swim_table.py --tables /dev/stderr

vast-emulator: $(VENV)/installed
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.vast_emulator --real --port 8080 $(EMULATOR)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
