# make setup: everything a fresh Debian or Ubuntu machine needs. make demo: the main job. make test: all checks.
# make storm: ten thousand fault storms.
SHELL := /bin/bash
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
VENV := .venv
BIN := $(VENV)/bin
# Debian's own interpreter: Mininet and bcc are Debian packages, which no other python3 on PATH can import.
PYTHON := /usr/bin/python3
OBJECTS := bpf/objects/.built
OURS := reclaimnet.py bpf topologies testbed controller experiments
# hundreds of Pythons start in the tests, and each would compile what it imports
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-all test-extras test-long test-nspawn test-stock-kernel signals measure evidence storm lint sizes virtual-size clean-build docs

# the owner's command begins without what this machine has every interpreter import (see experiments/cli/reclaimnet)
hurried = sed -i '1{/ -S$$/!s/$$/ -S/}' $(BIN)/reclaimnet

# of libraries, by both cores, while pip would use one; some hold files that are no Python of this version
libraries = $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true

setup: $(VENV)/.ready $(OBJECTS) $(VENV)/.compiled
	@# byte code, which an owner who is not root cannot keep and `reclaim` would else make each time
	@$(BIN)/python -m compileall -q $(OURS)
	@$(libraries)

$(VENV)/.apt: setup-apt.sh
	$(SUDO) ./setup-apt.sh
	@mkdir -p $(VENV) && touch $@

$(VENV)/.apt-tests: $(VENV)/.apt
	$(SUDO) ./setup-apt.sh tests
	@touch $@

$(VENV)/.apt-measure: $(VENV)/.apt
	$(SUDO) ./setup-apt.sh measure
	@touch $@

$(VENV)/.apt-stock-kernel: $(VENV)/.apt
	$(SUDO) ./setup-apt.sh stock-kernel
	@touch $@

# PyTorch, for the tests of jobs that train: where pip's build brings CUDA, several GB
$(VENV)/.torch: $(VENV)/.ready $(VENV)/.extras
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --editable '.[torch]' torch==2.13.0
	@$(hurried)
	@touch $@

$(VENV)/.ready: $(VENV)/.apt setup.cfg pyproject.toml
	$(PYTHON) -m venv --system-site-packages $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	@$(hurried)
	@touch $@

# libraries that only tests marked `extra` import
$(VENV)/.extras: $(VENV)/.ready
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev,test-extras]'
	@$(hurried)
	@touch $@

$(OBJECTS): $(VENV)/.ready $(wildcard bpf/src/*) bpf/build.py
	$(BIN)/python -m bpf.build
	@touch $@

# the machine code of the decisions, kept beside their source
$(VENV)/.compiled: $(VENV)/.ready $(shell find controller/core controller/numerics -name '*.py')
	$(BIN)/python -m controller.warm_up
	@touch $@

demo: setup
	$(SUDO) $(CURDIR)/$(BIN)/reclaimnet demo --out out/demo

test: MARKS = not long and not extra
test: $(VENV)/.ready
	$(MAKE) -j2 --output-sync $(OBJECTS) $(VENV)/.compiled lint
	@$(BIN)/python -m compileall -q -j 0 $(OURS) tests
	@# what of the libraries is imported is compiled then, but by root it would be root's
	@$(if $(SUDO),$(libraries))
	tests/all.sh "$(MARKS)" $(SUDO)

# of `test` and `test-extras`: what takes a core fills the waits of what takes time
test-all: $(VENV)/.ready
	$(MAKE) -j2 --output-sync $(VENV)/.apt-tests $(VENV)/.torch $(OBJECTS)
	$(MAKE) test MARKS="not long"

# tests marked `extra`: PyTorch, Chromium, bcc, Dask, the wheel
test-extras: setup $(VENV)/.extras $(VENV)/.apt-tests $(VENV)/.torch
	tests/all.sh "extra and not long" $(SUDO)

# more seeds, longer spans, 400 examples of each property (20 minutes)
test-long: setup $(VENV)/.extras $(VENV)/.apt-tests $(VENV)/.torch
	$(SUDO) env CI=$(CI) HYPOTHESIS_PROFILE=long $(CURDIR)/$(BIN)/python -m pytest --timeout 900 -m long

# an agent, and a coordinator, are installed in containers with systemd
test-nspawn: setup $(VENV)/.apt-tests
	$(SUDO) $(CURDIR)/$(BIN)/python -m pytest --durations=2 tests/test_installed.py

# the tests marked `stock_kernel` in a guest with Debian's own kernel (fq, Open vSwitch), fetched once into .stock
test-stock-kernel: setup $(VENV)/.apt-stock-kernel
	$(BIN)/python -m tests.stock_kernel

# SIGINT, SIGTERM and SIGHUP, 40 times each, at random moments of a campus's life
signals: setup
	$(SUDO) env MOMENTS=40 $(CURDIR)/$(BIN)/python -m pytest --timeout 600 tests/test_emulation_signals.py

# half an hour on a machine that does nothing else: the live measurements, short, and a page with goals beside figures
measure: setup $(VENV)/.apt-measure
	$(SUDO) $(CURDIR)/$(BIN)/reclaimnet measure all --out out/measure

# what `reclaimnet reproduce` and `make measure` left in out becomes the committed evidence; pages that quote it follow
evidence: $(VENV)/.ready
	cp $(wildcard out/claims/*.json $(foreach name,$(notdir $(wildcard out/measure/*)),out/measure/$(name)/$(name).json)) experiments/values/
	$(BIN)/python docs/generate.py

storm: setup
	$(BIN)/reclaimnet storm --seeds 0:10000

# the documentation as a site; README links to the same pages
docs: setup
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,docs]'
	@$(hurried)
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --strict --quiet
	@echo out/docs/index.html

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# lines, fields, rows, commands and words beside the most that each should be
sizes: $(VENV)/.ready
	@$(BIN)/python -m tests.sizes

# what an install for virtual time alone takes, in MB, the heaviest first: at most 350 in all
virtual-size:
	rm -rf out/virtual && python3 -m venv out/virtual && out/virtual/bin/pip install --quiet --disable-pip-version-check .
	out/virtual/bin/reclaimnet simulate example:lab --out out/virtual/lab > /dev/null
	@cd out/virtual/lib/python3*/site-packages && du -sm * | sort -rn | head -12 && test "$$(du -sm . | tee /dev/stderr | cut -f1)" -lt 350

clean-build:
	$(SUDO) rm -rf $(VENV) bpf/objects build *.egg-info .mypy_cache .ruff_cache .pytest_cache
