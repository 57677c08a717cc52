# make demo    look up or tune three einsums and compare with numpy
# make test    the whole test suite, on all cores
# make quick   what to run while editing: all tests but the slow ones, see doc/guides/contributing.rst
# make fuzz    random einsums, epilogues and programs of the three languages by the hundred: FUZZ="--of tensor"
# make check   ruff, types, import rules
# make doc     the pages of doc/, into doc/_build/html/index.html
# make tour    what the commands of doc/start/first-ten-minutes.rst print on this machine, written into it
# make notebooks  the notebooks executed, and their outputs written into them; best on a machine that is idle
# make bench   beside numpy, opt_einsum, torch, JAX and numba (2 GB to install) on the CPU: $(RESULTS)/suite.rst
# make bench-pocl the same cases with PoCL, where that is installed: $(RESULTS)/suite-pocl.rst
# make bench-gpu  the same at the sizes for GPUs, with what $(PYTHON) has installed: $(RESULTS)/suite.rst
# make bench-gate  whether this checkout is slower than the last release, exit code 1 if so; GATE="--base main" for another
#
# make bench-wide  einsums that nobody tuned, untuned and tuned, beside the same: hours; WIDE="--limit 2 --tune 0" for less
# make bench-wide-gpu  the same at the sizes for GPUs; CuPy is beside it with cuTENSOR where that is installed
#
# Each makes .venv first.  Other interpreter: make demo PYTHON=python3.12

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# -qq, as pip 26 passes on what setuptools has to say of every editable installation
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.PHONY: demo test quick fuzz check doc tour notebooks bench bench-pocl bench-gpu bench-wide bench-wide-gpu bench-gate clean

demo: $(VENV)/.installed $(VENV)/.device
	$(BIN)/python -m benchmarks demo

# A file stays in one process, for its tests share fixtures.  (Groups of pytest-xdist 3.8 have no effect under pytest 9.)
# The longest files begin first: tests/processor_times.txt.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(PARALLEL)

quick: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

# What is random, on which runtimes, how many and the seed: python tests/fuzzing.py --help
FUZZ ?=

fuzz: $(VENV)/.installed-dev
	$(BIN)/python tests/fuzzing.py $(FUZZ)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

doc: $(VENV)/.installed-dev
	$(BIN)/python -m sphinx -W --keep-going -q -b html doc doc/_build/html
	@echo "see doc/_build/html/index.html"

tour: $(VENV)/.installed $(VENV)/.device
	$(BIN)/python -m benchmarks tour

notebooks: $(VENV)/.installed-notebooks $(VENV)/.device
	$(BIN)/python notebooks/execute.py

# The cases and types to measure, e.g. make bench BENCH="--cases all --seconds 2"
BENCH ?=
# Where rows and reports go; those of a device that doc/ explains are in benchmarks/results/<device>
RESULTS ?= benchmarks/results/this-machine

bench: $(VENV)/.installed-bench
	mkdir -p $(RESULTS)
	$(BIN)/python -m benchmarks suite --out $(RESULTS)/suite.jsonl --report $(RESULTS)/suite.rst $(BENCH)
	$(BIN)/python -m benchmarks costs

bench-pocl: $(VENV)/.installed-bench
	mkdir -p $(RESULTS)
	$(BIN)/python -m benchmarks suite --device pocl --out $(RESULTS)/suite-pocl.jsonl --report $(RESULTS)/suite-pocl.rst $(BENCH)

# A machine with a GPU need not have a registry, so nothing is installed: the checkout is enough.
bench-gpu:
	mkdir -p $(RESULTS)
	PYTHONPATH=$(CURDIR) $(PYTHON) -m benchmarks suite --side gpu --cases all \
	    --out $(RESULTS)/suite.jsonl --report $(RESULTS)/suite.rst $(BENCH)

# What to measure of the wide list, and for how long to tune each
WIDE ?= --tune 20

bench-wide: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks wide $(WIDE)

bench-wide-gpu:
	PYTHONPATH=$(CURDIR) $(PYTHON) -m benchmarks wide --side gpu --ahead 4 $(WIDE)

# What to compare with and how long; best on a machine that is idle
GATE ?=

bench-gate: $(VENV)/.installed $(VENV)/.device
	$(BIN)/python -m benchmarks gate $(GATE)

clean:
	rm -rf $(VENV) build dist doc/_build doc/notebooks *.egg-info

# Debian's python3 lacks ensurepip unless python3-venv is installed; its pip can fill the environment from outside.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info < (3, 11) and sys.exit("feinsum needs Python 3.11 or newer; make PYTHON=...")'
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV) > /dev/null 2>&1 || { \
	    $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }

$(VENV)/.installed: setup.cfg pyproject.toml | $(BIN)/python
	@echo "installing feinsum and what it needs into $(VENV); the first time this takes a minute or two"
	@$(PIP) install --editable .
	@touch $@

# A listed device may be unable to build a kernel, so `devices` tries each of them.
$(VENV)/.device: $(VENV)/.installed
	@$(BIN)/python -m feinsum devices || { \
	    echo "installing an OpenCL runtime for this CPU (225 MB)"; \
	    $(PIP) install --editable .[cpu] && $(BIN)/python -m feinsum devices --refresh; }
	@touch $@

$(VENV)/.installed-bench: setup.cfg pyproject.toml $(VENV)/.device
	@echo "installing what feinsum is measured beside into $(VENV)"
	@$(PIP) install --editable .[bench,report]
	@touch $@

$(VENV)/.installed-notebooks: setup.cfg pyproject.toml | $(BIN)/python
	@echo "installing feinsum with what its notebooks need into $(VENV)"
	@$(PIP) install --editable .[notebooks]
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: setup.cfg pyproject.toml | $(BIN)/python
	@echo "installing feinsum with its test tools and an OpenCL runtime for this CPU into $(VENV)"
	@$(PIP) install --editable .[dev,cpu,postgres,cluster,report]
	@touch $@ $(VENV)/.installed
