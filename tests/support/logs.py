"""Warnings and errors that a test did not announce make it fail, in this process and in the daemons of its nodes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator

import pytest

from tests.support.node import Node

#: Logs what Serf's agents print, which depends on the order of their packets.
_SERF = "basefs.serf"
#: Begins a traceback in a daemon's log.
_TRACEBACK = "Traceback (most recent call last):"
#: Characters of each that are shown.
_SHOWN = 4000


class _Keeper(logging.Handler):
    """Keeps what is logged as a warning or worse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != _SERF:
            self.lines.append(f"{record.levelname} {record.name}: {self.format(record)}")


@pytest.fixture(autouse=True)
def _no_unexpected_logs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail for each warning and error that no `logs(PATTERN, ...)` marker announces; `caplog` announces all of them."""
    keeper = _Keeper()
    logging.getLogger().addHandler(keeper)
    yield
    logging.getLogger().removeHandler(keeper)
    if "caplog" in request.fixturenames:
        return
    unexpected = [line for line in keeper.lines if not _is_announced(request, line)]
    if unexpected:
        pytest.fail("unexpected in the log:\n" + "\n".join(unexpected), pytrace=False)


def check_daemons(request: pytest.FixtureRequest, nodes: Iterable[Node]) -> None:
    """Fail for each traceback in what the daemons of some nodes logged, unless a `logs` marker announces it."""
    unexpected = []
    for node in nodes:
        for path in sorted((node.home / "logs").glob("*.log")):
            text = path.read_text(errors="replace")
            unexpected += [part for part in text.split(_TRACEBACK)[1:] if not _is_announced(request, part)]
    if unexpected:
        pytest.fail(f"{_TRACEBACK}{_TRACEBACK.join(part[:_SHOWN] for part in unexpected)}", pytrace=False)


def _is_announced(request: pytest.FixtureRequest, text: str) -> bool:
    return any(re.search(pattern, text) for marker in request.node.iter_markers("logs") for pattern in marker.args)
