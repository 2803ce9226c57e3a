# FMHA Lab. `make run` opens the app, `make test` checks everything; both set up .venv on their first call.
# Written for GNU Make 3.81 (macOS) and later. Another Python: make run PYTHON=python3.12

PYTHON ?= python3
PORT ?=
ADDRESS ?=
WATCH ?=
OUT ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
# Tools that must be present, comma separated: browser, node, cxx. One that is missing and not named here
# skips its tests with a reason; one that is named fails them.
FMHA_REQUIRE ?=
export FMHA_REQUIRE

# `streamlit run`, but for Ctrl-C: Streamlit calls it an abort and ends with status 1, and make calls that an error.
# What is warned of then is what was about to be begun. make has the keys too, and must hear of them before the end.
START := import signal, sys, time, warnings; \
	stop = lambda *_: (warnings.simplefilter("ignore"), time.sleep(0.3), sys.exit(0)); \
	signal.signal(signal.SIGINT, stop); from streamlit.web.cli import main; main(prog_name="streamlit")

.PHONY: help run test lint site tables measure-ui gpu setup setup-test test-js clean
help:
	@echo "make run         open the app (first call: sets up .venv)"
	@echo "make test        lint, types, tests of the browser code, Python tests"
	@echo "make lint        ruff and mypy only"
	@echo "make site        write the folder site/: pages that need no server, no network, no Python"
	@echo "make tables      write the README's table of the ladder from the recordings"
	@echo "make measure-ui  measure the interface in headless Chromium"

run: setup
	@$(MAKE) --no-print-directory gpu
	@exec $(BIN)/python -c '$(START)' run app.py $(if $(PORT),--server.port $(PORT)) $(if $(ADDRESS),--server.address $(ADDRESS)) $(if $(WATCH),--server.fileWatcherType $(WATCH))

setup: $(VENV)/.run-stamp
setup-test: $(VENV)/.test-stamp

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "FMHA Lab needs Python 3.11 or later; %s is %d.%d. Try: make run PYTHON=python3.12" % (sys.executable, v[0], v[1]))'
	@echo "Creating $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# A stamp is touched only after its install succeeded, so a start that was broken off is repeated.
$(VENV)/.run-stamp: requirements.txt | $(BIN)/python
	@echo "Installing requirements.txt (once) ..."
	@$(PIP) install -r requirements.txt
	@$(BIN)/python -m compileall -q fmha || true
	@touch $@

$(VENV)/.test-stamp: .ci/requirements-test.txt $(VENV)/.run-stamp
	@echo "Installing .ci/requirements-test.txt (once) ..."
	@$(PIP) install -r .ci/requirements-test.txt
	@touch $@

# PyCUDA, only where a GPU and a CUDA compiler are found. It never stops the app: every path ends in success.
gpu: setup
	@if ! command -v nvidia-smi >/dev/null 2>&1 || ! command -v nvcc >/dev/null 2>&1; then exit 0; fi; \
	stamp=$(VENV)/.gpu-stamp; \
	if [ -f $$stamp ] && [ ! requirements-gpu.txt -nt $$stamp ]; then exit 0; fi; \
	echo "NVIDIA GPU and CUDA compiler found: installing PyCUDA (requirements-gpu.txt) ..."; \
	if $(BIN)/python -m pip install -r requirements-gpu.txt >$(VENV)/pycuda.log 2>&1 \
	   && $(BIN)/python -c 'import pycuda.driver' >>$(VENV)/pycuda.log 2>&1; then \
		echo "PyCUDA installed."; \
	else \
		echo "PyCUDA could not be installed; the app runs without it. Reason: $(VENV)/pycuda.log"; \
		echo "To try again: rm $$stamp && make run"; \
	fi; \
	touch $$stamp

lint: setup-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-js: setup-test
	@files=$$(find tests -name '*.test.mjs' 2>/dev/null | sort); \
	if ! command -v node >/dev/null 2>&1; then \
		case ",$(FMHA_REQUIRE)," in \
			*,node,*) echo "node was not found, and FMHA_REQUIRE names it"; exit 1;; \
			*) echo "SKIPPED the tests of the browser code: node was not found";; \
		esac; \
	else echo "node --test" $$files; FMHA_PYTHON="$(CURDIR)/$(BIN)/python" node --test $$files; fi

# Every part runs even if an earlier one failed; pytest is last, so that its closing line ends the output.
test: setup-test
	@failed=; \
	$(MAKE) --no-print-directory lint || failed="$$failed lint"; \
	$(MAKE) --no-print-directory test-js || failed="$$failed test-js"; \
	$(BIN)/python -m pytest -n 2 --dist loadgroup || failed="$$failed pytest"; \
	if [ -n "$$failed" ]; then echo "make test FAILED in:$$failed"; exit 1; fi

tables: setup
	$(BIN)/python -m fmha.recorded.make_tables

site: setup
	$(BIN)/python -m fmha site $(if $(OUT),--out $(OUT))

measure-ui: setup-test
	$(BIN)/python -m tests.measure_ui

clean:
	@if [ -f site/.fmha-site ]; then rm -rf site; fi
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .measure
