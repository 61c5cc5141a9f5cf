# Two commands set everything up: `make drill` and `make test`. The rest are long or for maintainers.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OUT ?= hangdrill-runs
JOBS ?= 2
STACKS := $(or $(HANGDRILL_STACKS),$(HOME)/.cache/hangdrill-stacks)
STACK_VERSIONS ?= 2.13.0 2.14.1

.PHONY: help drill test lint unit scenarios matrix containers controls hosts fuzz bench scale docs-check package clean stacks certify test-jobs test-labs

help:
	@echo "make drill      virtual environment, install, one real hang drill on CPU (4 ranks, gloo)"
	@echo "make test       lint, types, import direction, every test (what CI runs)"
	@echo "make lint       ruff, mypy --strict, import-linter"
	@echo "make unit       the tests that start no job"
	@echo "make scenarios  the quick drills"
	@echo "make matrix     every workload x fault x rank on gloo (about half an hour on two cores)"
	@echo "make containers 20 drills each in bwrap, Docker and podman: nothing may be left (15 minutes; skips what is not there)"
	@echo "make hosts      drills over two hosts in namespaces, with every fault between them, Ctrl-C and SIGKILL (root; ten minutes)"
	@echo "make controls   every negative control in bwrap, and again in Docker (5 minutes; skips what is not there)"
	@echo "make stacks     environments with older torch versions, for the tests of certifications (in ~/.cache/hangdrill-stacks, 7 GB)"
	@echo "make certify    certifications at length: every checkpoint pair, planted slowdowns and memory on real stacks (half an hour, on a"
	@echo "                quiet machine); HANGDRILL_REPEATS=10 repeats the planted ones ten times (an hour and more)"
	@echo "make fuzz       long random programs against the diagnosis, mutations against the recorder"
	@echo "make bench      the speed claims, side by side"
	@echo "make scale      diagnose up to 16384 ranks beside pickle.load; writes 11 GB to ~/.cache/hangdrill-benchmarks"
	@echo "make package    build the wheel, install it elsewhere, run a drill from it"

# What running a drill needs: hangdrill and a torch for the ranks.
$(VENV)/run.stamp: pyproject.toml
	@echo "installing hangdrill and torch into $(VENV), once; torch is large, so this may take minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[torch]" "torch==2.15.0"
	@touch $@

# What testing needs on top.
$(VENV)/test.stamp: $(VENV)/run.stamp
	$(BIN)/python -m pip install --quiet --group test --group lint --group build
	@touch $@

# Other stacks, for the tests of certifications: outside of the checkout, made once.
stacks: $(STACK_VERSIONS:%=$(STACKS)/%/made.stamp)

$(STACKS)/%/made.stamp:
	$(PYTHON) -m venv $(STACKS)/$*
	$(STACKS)/$*/bin/python -m pip install --quiet "torch==$*" numpy
	@touch $@

drill: $(VENV)/run.stamp
	$(BIN)/hangdrill run quick/ddp-hold --out $(OUT)/make-drill-$$(date -u +%Y%m%dT%H%M%SZ)

# The tests that start jobs wait more than they work, so two lanes run side by side: what needs engines, schedulers and
# namespaces, and the rest. Each lane is printed when it has ended.
LABS := tests/launchers tests/controls tests/node

test: lint
	$(BIN)/python -m pytest tests -m "not torchrun" -n 2
	$(MAKE) --jobs 2 --output-sync=target --keep-going test-jobs test-labs

test-jobs: $(VENV)/test.stamp
	$(BIN)/python -m pytest tests $(LABS:%=--ignore=%) -m torchrun --durations 25

test-labs: $(VENV)/test.stamp
	$(BIN)/python -m pytest $(LABS) -m torchrun --durations 25

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(VENV)/test.stamp
	$(BIN)/python -m pytest tests -m "not torchrun"

scenarios: $(VENV)/run.stamp
	$(BIN)/hangdrill run -j $(JOBS)

matrix: $(VENV)/run.stamp
	$(BIN)/hangdrill run scenarios/faults -j 3 --out $(OUT)/matrix-$$(date -u +%Y%m%dT%H%M%SZ)

containers: $(VENV)/test.stamp
	HANGDRILL_CONTAINER_REPEATS=20 $(BIN)/python -m pytest tests/launchers/test_container_drills.py -k leave_nothing

hosts: $(VENV)/test.stamp
	$(BIN)/python -m pytest tests/node tests/node/hosts_at_length.py

controls: $(VENV)/test.stamp
	HANGDRILL_ALL_CONTROLS=1 $(BIN)/python -m pytest tests/controls

certify: $(VENV)/test.stamp stacks
	HANGDRILL_ALL_PAIRS=1 $(BIN)/python -m pytest tests/certify tests/certify/certify_at_length.py

fuzz: $(VENV)/test.stamp
	HANGDRILL_EXAMPLES=$${HANGDRILL_EXAMPLES:-10000} $(BIN)/python -m pytest tests/diagnosis tests/recorder -m "not torchrun" --timeout 7200
	$(BIN)/python tests/recorder/fuzz_reading.py --mutations $${HANGDRILL_MUTATIONS:-100000} --processes 2
	$(BIN)/python tests/recorder/fuzz_reading.py --prefixes --processes 2

bench: $(VENV)/test.stamp
	for file in $(filter-out %/make_dumps.py,$(wildcard benchmarks/*.py)); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

scale: $(VENV)/test.stamp
	$(BIN)/python benchmarks/diagnose_scale.py --sizes 256,1024,4096,16384

package: $(VENV)/test.stamp
	$(BIN)/python -m pytest tests/acceptance/test_wheel.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
