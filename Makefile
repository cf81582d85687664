# `make demo` and `make test` install what they need and are quick when nothing is missing.

VENV   := .venv
PYTHON := $(VENV)/bin/python
CORES  := $(shell nproc)
# Of `make pythons`.
SUPPORTED := python3.10 python3.11 python3.12 python3.13 python3.14
# Of `make simulate`.
SEEDS  := 100
FROM   := 0
# Debian and Ubuntu packages: what BaseFS itself needs, and what its tests and measurements need as well.
PACKAGES := fuse3 serf python3-venv python3-pip
TEST_PACKAGES := iproute2 util-linux iptables rsync git vim diffutils nano gcc libc6-dev python3-dev \
  libnetfilter-queue-dev stress-ng inotify-tools entr strace systemd mandoc man-db zsh fish procps openssl \
  openssh-client bindfs dbench

# Where the environment keeps Python from writing down what it has compiled, each of the processes that run tests would
# compile all of them again: 14 seconds each.
export PYTHONDONTWRITEBYTECODE :=

# The tests of `make check`.
QUICK := not (root or fuse or serf or cluster or process or slow or alone)

# Tells a test that the others disturb from one that fails: the first is a bug as well, but no reason to stop.
AGAIN = echo "The failed tests once more, one at a time; what passes now is disturbed by others: please report it" && \
  $(PYTHON) -m pytest -v --last-failed --last-failed-no-failures none -m 'not alone'

.PHONY: help install demo check pythons test test-pythons simulate lint format bench-fs bench-mount bench-log bench-contents \
  bench-growth bench-churn bench-hostile bench-net bench-scale posix saving eval storm man pins deb test-deb captures clean
.DEFAULT_GOAL := help

help:
	@echo "make demo            run three nodes on this machine, until Ctrl-C"
	@echo "make check           run ruff, mypy, and the tests without root, mounts and daemons: two minutes"
	@echo "make test            run all tests"
	@echo "make pythons         make environments of the other Pythons here, in which tests play clusters as well"
	@echo "make test-pythons    run the tests of make check on each of them"
	@echo "make simulate        play clusters in virtual time, with faults (SEEDS=100 FROM=0 PLAIN=)"
	@echo "make lint            run ruff and mypy"
	@echo "make format          apply the fixes of ruff"
	@echo "make bench-fs        measure file operations, beside bindfs and the plain disk"
	@echo "make bench-mount     measure renames, starts, memory, a killed daemon and copies on nodes that are mounted"
	@echo "make bench-log       measure applying entries, beside verifying signatures alone; memory and start"
	@echo "make bench-churn     measure the memory of a daemon after a day of files that come and go"
	@echo "make bench-contents  measure large files in memory and waiting time, and edits in bytes"
	@echo "make bench-growth    measure the growth of the log by each kind of edit"
	@echo "make bench-hostile   measure what a key holder costs others by entries that no honest node writes"
	@echo "make bench-net       measure changes on 30 nodes, in time and bytes; partitions, new nodes, idle cost"
	@echo "make bench-scale     measure simulated clusters of up to 10 000 nodes: changes, partitions, machines that come and go"
	@echo "make eval            repeat the experiments of the paper (EVAL='--quick': half an hour) and report"
	@echo "make posix           run public test programs on a mount (pjdfstest and fsx if there is cargo)"
	@echo "make saving          measure each way to save, for docs/saving.md"
	@echo "make storm           measure readers on one node while another delivers 5000 changes"
	@echo "make man             build the manual pages, into build/man"
	@echo "make pins            renew the versions and hashes of what the Debian package bundles"
	@echo "make deb             build a Debian package for this release, into build/"
	@echo "make test-deb        install it in a fresh Debian, use it and purge it"
	@echo "make captures        record the transcripts in the documents from the real programs"
	@echo "make clean           remove the virtual environment and caches"

install: $(VENV)/.system $(VENV)/.installed

# Asks for root only if a package is missing.
$(VENV)/.system: Makefile install.sh
	@sh install.sh $(PACKAGES) $(TEST_PACKAGES)
	@# Debian's Python comes without its own tests, which ours run on a mount; the package is named after the version.
	@python3 -c 'import test.test_os' 2>/dev/null || \
		sh install.sh $$(python3 -c 'import sys; print("libpython3.%d-testsuite" % sys.version_info.minor)')
	@mkdir -p $(VENV) && touch $@

$(VENV)/.installed: setup.py $(VENV)/.system $(VENV)/.checkable
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[emulator]'
	@touch $@

# What `make check` needs: nothing but Python packages that come ready made.
$(VENV)/.checkable: setup.py
	@test -x $(PYTHON) || $$(command -v python3) -m venv $(VENV)
	@echo "Installing Python packages ..."
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[test,lint,eval]'
	@touch $@

# In an environment of its own, without the programs and packages of the tests.
demo: $(VENV)/demo/.installed
	@sh install.sh --check-root "make demo"
	@$(VENV)/demo/bin/python -m eval.demo

$(VENV)/demo/.installed: setup.py Makefile install.sh
	@sh install.sh $(PACKAGES)
	@test -x $(VENV)/demo/bin/python || $$(command -v python3) -m venv $(VENV)/demo
	@echo "Installing Python packages ..."
	@$(VENV)/demo/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

check: $(VENV)/.checkable
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	@$(PYTHON) -m compileall -q basefs eval
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick} $(PYTHON) -m pytest -q -n $(CORES) --dist worksteal -m '$(QUICK)'

# Of those on the PATH, and of pyenv's, one of each version.
pythons: $(VENV)/.checkable
	@for python in $$(command -v $(SUPPORTED)) $(wildcard $(addprefix $(HOME)/.pyenv/versions/,3.1[0-9].*/bin/python)); do \
		found=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue; \
		test $$found = $$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])') && continue; \
		test -e $(VENV)/pythons/$$found/.ready && continue; \
		echo "Installing Python packages for Python $$found ..."; \
		$$python -m venv $(VENV)/pythons/$$found && $(VENV)/pythons/$$found/bin/python -m pip install --quiet \
			--disable-pip-version-check --editable '.[test]' && touch $(VENV)/pythons/$$found/.ready || exit 1; \
	done

test: install
	@sh install.sh --check-root "make test"
	@$(PYTHON) -m compileall -q basefs eval
	@# Two of three workers wait, for a daemon or a network.
	@$(PYTHON) -m pytest -n $$((3 * $(CORES))) --dist loadgroup -m 'not alone' || { test $$? = 1 && $(AGAIN); }
	@$(PYTHON) -m pytest -m alone

test-pythons: pythons
	@failed=; for python in $(VENV)/pythons/*/bin/python; do \
		test -x $$python || continue; \
		$$python -V; \
		$$python -m pip install --quiet --disable-pip-version-check --editable '.[test,eval]' || exit 1; \
		$$python -m compileall -q basefs eval; \
		HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick} $$python -m pytest -q -n $(CORES) --dist worksteal -m '$(QUICK)' || \
			failed="$$failed $$python"; \
	done; test -z "$$failed" || { echo "tests failed on$$failed" >&2; exit 1; }

simulate: $(VENV)/.checkable
	@$(PYTHON) -m tests.simulation --seeds $(SEEDS) --from $(FROM) --jobs $(CORES) $(PLAIN) $(TRACE)

lint: $(VENV)/.checkable
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m tests.complexity

format: $(VENV)/.checkable
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench-fs: install
	@sh install.sh --check-root "make bench-fs"
	@$(PYTHON) -m eval.bench_fs

bench-mount: install
	@sh install.sh --check-root "make bench-mount"
	@$(PYTHON) -m eval.bench_mount

bench-log: install
	@sh install.sh --check-root "make bench-log"
	@$(PYTHON) -m eval.bench_log

bench-churn: install
	@sh install.sh --check-root "make bench-churn"
	@$(PYTHON) -m eval.bench_churn

bench-contents: install
	@$(PYTHON) -m eval.bench_contents

bench-growth: install
	@sh install.sh --check-root "make bench-growth"
	@$(PYTHON) -m eval.bench_growth

bench-hostile: install
	@sh install.sh --check-root "make bench-hostile"
	@$(PYTHON) -m eval.bench_hostile

bench-net: install
	@sh install.sh --check-root "make bench-net"
	@$(PYTHON) -m eval.bench_net

bench-scale: $(VENV)/.checkable
	@$(PYTHON) -m eval.bench_scale

# Programs that cargo brings, if there is one: Debian's own may be too old for them.
posix: install
	@sh install.sh --check-root "make posix"
	@if command -v cargo >/dev/null; then \
		test -x $(VENV)/bin/fsx || cargo install --quiet --locked --root $(VENV) pjdfstest@0.2.2 fsx@0.3.2; \
	else echo "pjdfstest and fsx are left out: there is no cargo"; fi
	@$(PYTHON) -m eval.posix

saving: install
	@sh install.sh --check-root "make saving"
	@$(PYTHON) -m eval.saving

# All of them take more than a day: EVAL takes the options of python -m eval, as --quick or --backend docker.
eval: install
	@sh install.sh --check-root "make eval"
	@sh install.sh etcd-server syncthing docker.io debootstrap
	@$(PYTHON) -m eval $(EVAL)

storm: install
	@sh install.sh --check-root "make storm"
	@$(PYTHON) -m eval.storm

man: install
	@$(PYTHON) -m deploy.manpages build/man
	@echo "build/man has them: man -l build/man/basefs.1"

# What the package bundles, anew: the latest versions that setup.py allows, with their hashes.
pins: $(VENV)/.checkable
	@test -x $(VENV)/bin/uv || $(PYTHON) -m pip install --quiet --disable-pip-version-check uv
	@{ sed -n '/^#/p' deploy/requirements.txt; echo 'setuptools>=61' | \
		$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header --no-annotate \
		--extra fast setup.py -; } > deploy/requirements.new
	@mv deploy/requirements.new deploy/requirements.txt

deb:
	@sh install.sh python3 python3-venv
	@sh deploy/deb.sh $$(python3 -c 'import re; print(re.search("__version__ = .(.*?).$$", open("basefs/__init__.py").read(), re.M)[1])') build

# Some minutes: a Debian of its own is made for it.
test-deb: deb
	@sh install.sh --check-root "make test-deb"
	@sh install.sh debootstrap
	@sh deploy/test_deb.sh build/basefs_*.deb

captures: install
	@sh install.sh --check-root "make captures"
	@$(PYTHON) -m eval.captures

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
