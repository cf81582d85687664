"""Progress: one line on a terminal, which leaves nothing behind."""

from __future__ import annotations

import io
import sys

import pytest

from basefs.management.progress import count_bar, transfer_bar, waiting


def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is written to a terminal from now on."""
    written = io.StringIO()
    written.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", written)
    return written


def test_bytes_of_an_unknown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    written = terminal(monkeypatch)
    with transfer_bar("import", None) as progress:
        progress(1500)
    assert "import: 1.5 kB, " in written.getvalue() and "?" not in written.getvalue()
    assert written.getvalue().endswith("\r\x1b[K") and "\n" not in written.getvalue()


def test_a_whole_that_is_known_later(monkeypatch: pytest.MonkeyPatch) -> None:
    written = terminal(monkeypatch)
    with transfer_bar("serf", None) as progress:
        progress(1500, 3000)
    assert "serf: 1.5 kB of 3.0 kB, " in written.getvalue()


def test_things(monkeypatch: pytest.MonkeyPatch) -> None:
    written = terminal(monkeypatch)
    with count_bar("check", 20) as progress:
        progress(5)
    assert "check: 5 of 20, " in written.getvalue()


def test_a_line_is_never_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    written = terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "20")
    with waiting("a long title " * 5):
        pass
    assert written.getvalue() == "\ra long title a long\x1b[K\r\x1b[K"


def test_nothing_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with transfer_bar("import", 5) as progress, waiting("x"):
        progress(1)
    assert capsys.readouterr() == ("", "")
