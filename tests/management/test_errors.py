"""Exit codes: every error of ours has one."""

from __future__ import annotations

import pytest

from basefs import errors
from basefs.management.errors import DONE, EXIT_CODES, FAILED, WRONG_USAGE, exit_code_of
from tests.support.errors import ALL


@pytest.mark.parametrize("cls", [cls for cls in ALL if cls is not errors.ProtocolError], ids=lambda cls: cls.__name__)
def test_every_class_has_a_code(cls: type[errors.BaseFSError]) -> None:
    expected = WRONG_USAGE if issubclass(cls, errors.UsageError) else FAILED
    assert exit_code_of(cls("message")) == expected


def test_the_codes_are_those_of_the_documentation() -> None:
    assert (DONE, FAILED, WRONG_USAGE) == (0, 1, 2)
    assert set(EXIT_CODES.values()) == {FAILED, WRONG_USAGE}
