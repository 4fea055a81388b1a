# Everything that `make` does, it sets up itself, in .venv: a fresh machine needs Python 3.11 and make.
#
#   make demo     the closed loop on this machine: agents work, the model learns, weights are swapped under load
#   make test     unit, contract and integration tests (real nats-server, real HTTP, real engine)
#   make chaos    kill -9 of daemon, learner and broker in mid-demo
#   make check    ruff, pyright, import-linter
#   make bench    the benchmarks: tables on screen, JSON under build/
#   make lock     resolve the dependencies anew
#
# torch is not in the lock. It is installed from TORCH_INDEX_URL or TORCH_FIND_LINKS if one is set, else as pip is
# configured (an unconfigured pip on Linux takes the CUDA build, several gigabytes: see README).

PYTHON ?= python3
BIN := .venv/bin
UV := $(BIN)/uv
UV_VERSION := 0.13.8
TORCH := torch==2.13.0
SEED ?= 0
LOCK := $(UV) pip compile -q --python-version 3.11 --universal --generate-hashes --no-annotate --no-header \
	--override locks/overrides.txt

.PHONY: setup demo test chaos check bench lock clean

setup: .venv/ready

.venv/ready: pyproject.toml locks/dev.txt
	@$(PYTHON) -c 'import sys, venv, ensurepip; assert sys.version_info >= (3, 11)' || \
		{ echo "evolved needs Python 3.11 or newer with venv (Debian: apt install python3-venv)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "setup: torch (the largest part)"
	@$(BIN)/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH) \
		$(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL)) $(if $(TORCH_FIND_LINKS),--find-links $(TORCH_FIND_LINKS))
	@echo "setup: locked dependencies"
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r locks/dev.txt
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

demo: setup
	$(BIN)/evolved demo --seed $(SEED)

test: setup
	$(BIN)/python -m pytest tests/unit tests/contract tests/integration

chaos: setup
	$(BIN)/python -m pytest tests/chaos

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: setup
	@mkdir -p build
	$(BIN)/python -m tests.benchmarks.tap_latency --json build/tap_latency.json
	$(BIN)/python -m tests.benchmarks.swap_gap --json build/swap_gap.json

lock:
	$(LOCK) pyproject.toml -o locks/base.txt
	$(LOCK) --extra learner --group dev pyproject.toml locks/torch-needs.in -o locks/dev.txt

clean:
	rm -rf .venv build .run
