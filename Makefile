# `make demo` and `make test` install what they need and are quick when nothing is missing.

VENV   := .venv
PYTHON := $(VENV)/bin/python
# Programs that must be there -> Debian and Ubuntu packages that bring them.
PACKAGES := fuse3 libfuse3-3 serf iproute2 util-linux iptables python3-venv python3-pip rsync git vim diffutils

.PHONY: demo test lint format bench clean install
.DEFAULT_GOAL := help

help:
	@echo "make demo    three nodes on this machine, until Ctrl-C"
	@echo "make test    the whole test suite"
	@echo "make lint    ruff and mypy"
	@echo "make bench   what a copy of /etc costs, beside bindfs, and how soon others have it"
	@echo "make clean   remove the virtual environment and caches"

install: $(VENV)/.system $(VENV)/.installed

# Asks for root only if a package is missing.
$(VENV)/.system: Makefile install.sh
	@sh install.sh $(PACKAGES)
	@mkdir -p $(VENV) && touch $@

$(VENV)/.installed: setup.py $(VENV)/.system
	@test -x $(PYTHON) || $$(command -v python3) -m venv $(VENV)
	@echo "Installing Python packages ..."
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[test,lint]'
	@touch $@

demo: install
	@sh install.sh --check-root "make demo"
	@$(PYTHON) -m eval.demo

test: install
	@sh install.sh --check-root "make test"
	@$(PYTHON) -m pytest

lint: install
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: install
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: install
	@sh install.sh --check-root "make bench"
	@sh install.sh bindfs
	@$(PYTHON) -m eval.bench

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
