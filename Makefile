# Everything runs from a fresh clone with nothing but python3 (3.11 or later).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ORACLES := .venv-oracles
JOBS ?= 2

STAMP := $(VENV)/.done
DEV_STAMP := $(VENV)/.done-dev
ORACLES_STAMP := $(ORACLES)/.done
RESULTS := src/gnomon/catalog/data/accuracy/results.json

.DEFAULT_GOAL := help
.PHONY: lab-results lab-keep help setup demo test test-heavy test-stored test-all replay fuzz check format bench test-oracles profiles golden references accuracy modules catalog hardware fit-page papers clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: Gnomon needs Python 3.11 or later; try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(DEV_STAMP): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(STAMP)

$(ORACLES_STAMP): pyproject.toml tests/oracles/requirements.txt
	$(PYTHON) -m venv $(ORACLES)
	$(ORACLES)/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(ORACLES)/bin/pip install --quiet --disable-pip-version-check -r tests/oracles/requirements.txt
	$(ORACLES)/bin/pip install --quiet --disable-pip-version-check --no-deps vllm==0.24.0
	$(ORACLES)/bin/pip install --quiet --disable-pip-version-check --no-deps torchtitan==0.3.0 torchao==0.18.0 \
		torchdata==0.11.0 torch_checkpointing==0.1.1
	DS_BUILD_OPS=0 $(ORACLES)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		deepspeed==0.19.8
	$(ORACLES)/bin/pip install --quiet --disable-pip-version-check pytest pytest-xdist --editable .
	@touch $@

setup: $(DEV_STAMP) ## make .venv with Gnomon and its developer tools

demo: $(STAMP) ## plan a deployment, open one of its numbers, plan a training run
	$(BIN)/gnomon plan serve llama-3.1-70b --fleet H100:16 --rate 8 --input 1024 --output 256 --slo ttft_p90=1s,tpot_p90=50ms
	$(BIN)/gnomon predict llama-3.1-8b --on H200 --phase decode --batch 32 --context 1024
	$(BIN)/gnomon plan train gpt3-175b --cluster A100-SXM-80GB:1024 --seq 2048 --global-batch 1536 --tokens 300e9

test: $(DEV_STAMP) ## run the tests that need neither a GPU nor an engine
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --ignore=tests/oracles

test-heavy: $(DEV_STAMP) ## run the tests that take a second or more each: searches, tuning, whole programs
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --ignore=tests/oracles -m 'heavy and not slow'

test-stored: $(DEV_STAMP) ## README, pages, papers and shipped profiles are what their sources make of them
	$(BIN)/python -m pytest -q -n $(JOBS) --whole -m slow tests/golden tests/calibrate tests/papers tests/tools

test-all: $(DEV_STAMP) ## the same with every battery whole; about an hour
	$(BIN)/python -m pytest -q -n $(JOBS) --ignore=tests/oracles --whole -m 'not oracle and not gpu'

replay: $(DEV_STAMP) ## answer 640 stored questions again and list every number that differs
	$(BIN)/python -m tests.replay --jobs $(JOBS)

fuzz: $(DEV_STAMP) ## run 100,000 fuzzed inputs, an hour or two; stopped, it goes on where it was
	$(BIN)/python -m tests.fuzz --cases 100000 --jobs $(JOBS)

check: $(DEV_STAMP) ## lint, format, types, import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV_STAMP) ## put the code in house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV_STAMP) ## measure Gnomon's own speed
	@for file in bench/commands.py bench/*_speed.py; do echo "$$file"; $(BIN)/python $$file || exit 1; done

test-oracles: $(ORACLES_STAMP) ## compare with vLLM's and PyTorch's own code, on a CPU
	$(ORACLES)/bin/python -m pytest -q -m '' -n $(JOBS) --dist loadfile tests/oracles

profiles: $(STAMP) ## fit the shipped profiles and overheads again from the measurements
	$(BIN)/python -m tools.ship measurements/h200-2026-11-15
	$(BIN)/python -m tools.published
	$(BIN)/python -m tools.collectives
	$(BIN)/python -m tools.chips
	$(BIN)/python -m tools.layer_tables

golden: references ## store today's predictions, README, guides and references, after a change that was meant
	$(BIN)/python -m tests.golden.update
	$(BIN)/python -m tests.golden.pages

references: $(DEV_STAMP) ## write docs/cli.md and docs/api.md again from the commands and functions
	$(BIN)/python -m tests.golden.references

accuracy: $(DEV_STAMP) ## compare again with all data (GNOMON_TRUTH), without the user's own profiles; PART=runs for one part
	@home=$$(mktemp -d) && GNOMON_HOME=$$home $(BIN)/gnomon accuracy $(if $(PART),--part $(PART),--fresh) --jobs $(JOBS) --save $(RESULTS) \
		--out docs/accuracy.md --page docs/accuracy; code=$$?; rm -rf "$$home"; exit $$code

fit-page: $(STAMP) ## write docs/fit.md again from its steps
	$(BIN)/python -m tests.golden.fit_page

modules: $(ORACLES_STAMP) ## write the table of measured modules in docs/tracing.md again
	$(ORACLES)/bin/python -m tools.trace_accuracy
	$(ORACLES)/bin/python -m tools.decoder_accuracy

catalog: $(STAMP) ## build the catalog's indexed files from its YAML
	$(BIN)/python -m gnomon.catalog.build

hardware: catalog ## write docs/hardware.md again from the catalog
	$(BIN)/python -m tests.golden.hardware

lab-results: $(STAMP) ## predict the stored runs of the lab again
	$(BIN)/python -m gnomon.lab.predicted src/gnomon/papers/index/*/lab*.json

lab-keep: $(STAMP) ## keep results of `gnomon lab run --out-dir FROM` in the papers' folders
	$(BIN)/python -m gnomon.lab.keep $(FROM)/*.json

papers: $(STAMP) ## build the papers' index, compute their figures, write docs/papers.md
	$(BIN)/python -m gnomon.papers.build
	$(BIN)/python -m tests.golden.papers_page

clean: ## remove environments, caches and builds
	rm -rf $(VENV) $(ORACLES) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
