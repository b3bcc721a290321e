# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,lint,examples]'
	touch $@

.PHONY: demo test lint clean
demo: $(VENV)/.ready
	$(BIN)/python -m tracegrad demo

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -q

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check tracegrad tests
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache
