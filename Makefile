# Two commands: `make figures` and `make test`. Both are thin; see the README for the plain commands.
PYTHON ?= python3
VENV   ?= .venv
CORES  ?= all
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed

.PHONY: figures test lint lock clean-env

figures: $(READY)
	$(BIN)/snakemake --cores $(CORES)

test: $(READY)
	$(BIN)/pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/snakemake --lint

# The environment is made once, and again only when the locked versions or the package's metadata change.
# The lock is complete, so pip need not resolve: older ones look past it for extras (coverage[toml]) and then refuse.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "optnoise needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

lock:
	uv pip compile --quiet --universal --generate-hashes --no-header pyproject.toml --extra dev -o requirements.lock

clean-env:
	rm -rf $(VENV)
