# make demo            build lucebox into .venv and let the bundled model write code, offline
# make test            build, install the test tools, run all tests but the heavy oracles
# make test ORACLE=1   those too (torch, transformers, xllamacpp)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
DEMO_PROMPT := 'import os\n\n\nclass FileCache:\n    def __init__(self, path):\n'
WORKERS ?= 2

.PHONY: demo test tools clean

demo: $(VENV)
	$(PIP) .
	$(BIN)/lucebox generate "$$(printf $(DEMO_PROMPT))" --max-tokens 160 --echo

test: $(VENV)
ifdef ORACLE
	$(PIP) '.[test,oracle]'
	$(PIP) --no-deps dflash==0.1.0  # its own list would bring a second torch
	$(BIN)/python -m pytest -n $(WORKERS)
else
	$(PIP) '.[test]'
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not oracle'
	@echo 'Not run (make test ORACLE=1 runs them, with torch, transformers and xllamacpp):'
	@$(BIN)/python -m pytest --collect-only -m oracle | grep '::' | sed 's/\[.*//' | sort | uniq -c
endif

$(VENV): | tools
	$(PYTHON) -m venv $(VENV)

# One line for each thing the machine lacks, with the package that brings it.
tools:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null \
	  || { echo 'lucebox needs Python 3.10 or newer as $(PYTHON): apt install python3, or make PYTHON=...'; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
	  || { echo 'the venv module is missing: apt install python3-venv'; exit 1; }
	@$(PYTHON) -c 'import os, sysconfig as s, sys; sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' \
	  || { echo 'the Python headers are missing: apt install python3-dev'; exit 1; }
	@command -v "$${CXX:-c++}" >/dev/null 2>&1 \
	  || { echo 'a C++ compiler is missing: apt install g++'; exit 1; }

clean:
	rm -rf $(VENV) build dist
