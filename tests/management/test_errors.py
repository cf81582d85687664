"""Exit codes: every error of ours has one."""

from __future__ import annotations

import re

import pytest

from basefs import errors
from basefs.management.errors import EXIT_CODES, ExitCode, exit_code_of
from tests.support.errors import ALL
from tests.support.project import ROOT


@pytest.mark.parametrize("cls", [cls for cls in ALL if cls is not errors.ProtocolError], ids=lambda cls: cls.__name__)
def test_every_class_has_a_code(cls: type[errors.BaseFSError]) -> None:
    expected = ExitCode.WRONG_USAGE if issubclass(cls, errors.UsageError) else ExitCode.FAILED
    assert exit_code_of(cls("message")) == expected


def test_the_codes_are_those_of_the_documentation() -> None:
    table = (ROOT / "docs" / "commands.md").read_text().partition("| exit code |")[2].partition("\n\n")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == list(ExitCode)
    assert set(EXIT_CODES.values()) == {ExitCode.FAILED, ExitCode.WRONG_USAGE}
