# Each target works alone on a fresh clone: it creates .venv and installs what it needs, once.
#
#   make demo     optimize ResNet-50 for an accelerator, run it, check it
#   make test     the tests
#   make help     everything else

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2
N      ?= 1000
PYTHONS ?= python3.11 python3.12 python3.13
START  ?= 0
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# One BLAS thread a process: the tests already run on all cores, and results stay the same everywhere.
export OMP_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1
export MKL_NUM_THREADS = 1

.DEFAULT_GOAL := help
.PHONY: help demo test slow lint format conformance ort-loads ort-old c-conformance check-c check-rules verdicts fuzz fuzz-c hostile large bench zoo wheel-test pythons first-hour report-test docs clean

help:  ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 14) else \
	  f"eqsat needs Python 3.11 to 3.13; {sys.executable} is {v[0]}.{v[1]}: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP)  ## optimize ResNet-50 for dnnl + cpu, run it, compare with ONNX Runtime
	$(BIN)/python -m benchmarks.demo

# ONE_IN=N: of the cases of each test the first and about one in N, always the same ones.
test: ONE_IN ?= 6
test: $(STAMP)  ## the tests of less than some seconds; of the cases of each, one in six; all: make test ONE_IN=1
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --one-in $(ONE_IN)

slow: ONE_IN ?= 1
slow: $(STAMP)  ## those that take more than some seconds; of the cases of each, one in four: make slow ONE_IN=4
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m 'slow and not heavy' --one-in $(ONE_IN)

lint: $(STAMP)  ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP)  ## let ruff format the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

conformance: $(STAMP)  ## the executor against all of onnx.backend.test
	$(BIN)/python -m tests.conformance

# About 15 minutes.
ort-loads: $(STAMP)  ## what ONNX Runtime ran it runs when optimized: all of onnx.backend.test, all types of operators
	$(BIN)/python -m tests.conformance.loads

# In an environment of its own. Half an hour.
ort-old: $(STAMP) out/ort-1.20/.installed  ## files load in ONNX Runtime 1.20 where their input does: make ort-old MODELS="FILE_OR_FOLDER ..."
	$(BIN)/python -m tests.conformance.old out/ort-1.20/bin/python $(MODELS)

out/ort-1.20/.installed:
	$(PYTHON) -m venv out/ort-1.20
	out/ort-1.20/bin/python -m pip install --quiet --disable-pip-version-check 'onnxruntime==1.20.1' 'numpy<2.3'
	@touch $@

c-conformance: $(STAMP)  ## generated C against the node cases of onnx.backend.test
	$(BIN)/python -m tests.codegen

check-rules: $(STAMP)  ## what `make slow` has in short: rules on many more instances, more random graphs, more networks
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m heavy

# Stopped and started again it goes on where it was. After a change of the prover: VERDICTS=--renew, which takes long.
verdicts: $(STAMP)  ## prove the shipped rules whose verdict is not stored, and write verdicts and their table
	$(BIN)/python -m tests.proofs.verdicts $(VERDICTS)

# About half an hour on two idle cores. Stopped and started again it goes on where it was, unless a source has changed.
check-c: $(STAMP)  ## all node cases and 200 random graphs of each kind as C under ASan and UBSan; tests of C with -O3
	$(BIN)/python -m tests.codegen --how sanitize --jobs $(JOBS) --resume out/check_c.tsv
	$(BIN)/python -m tests.codegen.graphs 0 200 --how sanitize --jobs $(JOBS) --resume out/check_c_graphs.tsv
	EQSAT_TEST_OPTIMIZATION=-O3 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m '' tests/codegen
	EQSAT_TEST_PARTS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m '' tests/codegen/kernels

# Stopped and started again it goes on where it was, unless a source has changed. `.venv/bin/python -m tests.fuzz --help`
# says how a failure is repeated and shrunk.
fuzz: $(STAMP)  ## N random graphs of all kinds and types, each optimized in several ways and compared: make fuzz N=10000
	$(BIN)/python -m tests.fuzz $(N) --start $(START) --jobs $(JOBS) --resume out/fuzz.tsv --statistics out/fuzz.json

fuzz-c: $(STAMP)  ## N of them as C, half of them optimized before: make fuzz-c N=500
	$(BIN)/python -m tests.codegen.graphs $(START) $(N) --kind cases --jobs $(JOBS) --resume out/fuzz_c.tsv

hostile: $(STAMP)  ## models, files and arguments that want to overwhelm, each under 8 GB
	$(BIN)/python -m tests.hostile

large: $(STAMP)  ## a model of 3 GB, its weights beside it, in little more memory; needs 6 GB of disk
	$(BIN)/python -m pytest -m heavy tests/model/test_external_data.py

bench: $(STAMP)  ## the benchmarks: tables here, JSON in out/
	@mkdir -p out
	$(BIN)/python -m benchmarks.extracted_cost --json out/extracted_cost.json
	$(BIN)/python -m benchmarks.scaling --json out/scaling.json
	$(BIN)/python -m benchmarks.proofs --json out/proofs.json

zoo: $(STAMP)  ## exported models with free sizes, their errors beside ONNX Runtime: make zoo MODELS="FILE_OR_FOLDER ..."
	@mkdir -p out
	$(BIN)/python -m benchmarks.zoo $(MODELS) --json out/zoo.json

wheel-test: $(STAMP)  ## build the wheel, install it elsewhere, use it from there
	$(BIN)/python -m tests.wheel $(WHEEL_TEST)

# Others are named as commands or paths: make pythons PYTHONS="python3.13 /somewhere/bin/python".
pythons: $(STAMP)  ## the same, with all dependencies, under each Python from 3.11 to 3.13 that is here
	$(BIN)/python -m tests.wheel --under $(PYTHONS)

first-hour: $(STAMP)  ## the README and the tutorials in a clean environment; `make first-hour FIRST_HOUR=--short` in two minutes
	$(BIN)/python -m tests.first_hour $(FIRST_HOUR)

report-test: $(STAMP)  ## the HTML report in Chromium: no errors, pointer, keyboard, search; needs `apt-get install chromium`
	EQSAT_REQUIRE_BROWSER=1 $(BIN)/python -m pytest tests/report/test_browser.py
	$(BIN)/python -m benchmarks.report_page

docs: $(STAMP)  ## the documentation as a site in out/site; nothing is fetched while it is built or read
	@$(BIN)/python -c 'import mkdocs, material, mkdocstrings' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

clean:  ## remove what the targets above made
	rm -rf $(VENV) build dist out .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
