# `make serve` and `make test` do all set-up themselves; see scripts/setup.
BIN := .venv/bin

# Compiled files are half of what a server, or the tests, take to start.
unexport PYTHONDONTWRITEBYTECODE

# Quick tests wait for servers a third of their time: one more of them than processors keeps those busy.
WORKERS = $(shell expr $$(nproc) + 1)

.PHONY: serve test check format bench clean

serve: .venv/ready
	@exec $(BIN)/petri serve

# What takes long or is timed has the machine to itself; the rest shares it.
test: .venv/ready-dev
	$(BIN)/pytest -q -n auto -m "not slow"
	$(BIN)/pytest -q -m slow

check: .venv/ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile -m "not slow and not long" --hypothesis-profile=check

format: .venv/ready-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/ready-dev
	$(BIN)/python -m benchmarks --publish

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/ready: requirements.txt pyproject.toml scripts/setup
	scripts/setup serve

.venv/ready-dev: requirements-dev.txt pyproject.toml scripts/setup
	scripts/setup dev
