"""Skips what needs a Serf binary where there is none; CI fails if that happens there."""

from __future__ import annotations

import shutil

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that cannot run here."""
    if shutil.which("serf") is None:
        for item in items:
            if item.get_closest_marker("serf") is not None:
                item.add_marker(pytest.mark.skip(reason="no serf binary on PATH: apt-get install serf"))
