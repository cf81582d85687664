"""`make demo` needs no more than BaseFS itself."""

from __future__ import annotations

import subprocess
import sys

from tests.support.project import ROOT

#: Packages of tests and measurements.
_NOT_OURS = ("pytest", "hypothesis", "matplotlib", "numpy", "netfilterqueue", "docker", "ruff", "mypy")


def test_the_demonstration_runs_without_the_packages_of_the_tests() -> None:
    refuse = f"import sys; sys.modules.update(dict.fromkeys({_NOT_OURS!r})); import eval.demo"
    subprocess.run([sys.executable, "-c", refuse], cwd=ROOT, check=True, timeout=60)


def test_it_installs_no_programs_of_the_tests() -> None:
    makefile = (ROOT / "Makefile").read_text()
    _, _, rule = makefile.partition("\n$(VENV)/demo/.installed:")
    recipe = rule.partition("\n\n")[0]
    assert "$(PACKAGES)" in recipe and "TEST_PACKAGES" not in recipe
    line = makefile.partition("\nPACKAGES :=")[2].partition("\n")[0]
    assert line.split() == ["fuse3", "serf", "python3-venv", "python3-pip"]
