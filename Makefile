# Everything a newcomer types. Each line is what CI runs too.
CARGO ?= cargo
BIN   := bin
FACES := scheduler gpu-cli agent star
VENV  := python/.venv

.PHONY: build dist run test policy-test python python-test demo demo-cluster soak bench results lint fmt docs criteria clean

build: ## bin/muster, and links for its other command names
	$(CARGO) build --release --locked --package muster
	@mkdir -p $(BIN)
	@install -m 755 target/release/muster $(BIN)/muster
	@for face in $(FACES); do ln -sf muster $(BIN)/$$face; done

dist: build ## a release in dist/: binary, completions, configuration, licence, checksum
	scripts/dist.sh $(BIN)/muster dist

run: build ## a cluster with simulated GPUs on 127.0.0.1:8080
	$(BIN)/muster dev

test: ## all tests; those of PostgreSQL are skipped with a message if no server is installed
	$(CARGO) test --workspace --locked --no-fail-fast

policy-test: build ## load every policy in policies/, test the allocation of a GPU, run all policy tests
	$(BIN)/star --load-all --list-pools --list-schedules --test-gpu 0
	$(BIN)/muster policy test --coverage

python: $(VENV)/bin/pip ## build the Python wheel in python/dist
	$(VENV)/bin/pip install --quiet 'maturin>=1.9.4,<2'
	cd python && .venv/bin/maturin build --release --out dist

python-test: $(VENV)/bin/pip ## build, install, lint and test the Python package against the debug binary
	$(VENV)/bin/pip install --quiet --upgrade 'pip>=25.1'
	$(VENV)/bin/pip install --quiet --group python/pyproject.toml:dev
	cd python && .venv/bin/maturin build --out .venv/wheel
	$(VENV)/bin/pip install --quiet --force-reinstall --no-deps $(VENV)/wheel/*.whl
	cd python && .venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && .venv/bin/pytest

$(VENV)/bin/pip:
	python3 -m venv $(VENV)

demo: build ## a scripted tour
	scripts/demo.sh

demo-cluster: build ## a tour of three machines in network namespaces: a gang, and failing agents, leader and network
	scripts/demo-cluster.sh

criteria: ## the success criteria of the specification, one line each; needs PostgreSQL
	MUSTER_CRITERIA=1 $(CARGO) test --quiet --locked --package muster --test it criteria:: -- --format pretty

soak: build ## simulated clusters with injected faults: SEEDS= (how many), FIRST= (first seed), STEPS= (per seed)
	$(BIN)/muster sim --seeds $(or $(SEEDS),10000) --first $(or $(FIRST),0) --steps $(or $(STEPS),2000)

bench: build ## benchmarks, as tables for docs/results.md
	$(BIN)/muster bench plan
	$(BIN)/muster bench numa
	$(BIN)/muster bench policy
	$(CARGO) run --release --locked --package muster-bench

results: ## tables and plots of simulations in docs/results.md, from the traces: NAMES="mixed month queues placement"
	$(CARGO) xtask results $(NAMES)

lint: ## the format and clippy checks of CI
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

fmt:
	$(CARGO) fmt --all

docs: ## regenerate the documents that come from the code
	$(CARGO) xtask docs

clean:
	$(CARGO) clean
	rm -rf $(BIN) $(VENV) python/dist dist
