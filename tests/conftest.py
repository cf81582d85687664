"""Hypothesis profiles, and what marked tests need.

HYPOTHESIS_PROFILE selects a profile: "ci" by default, "quick" while something is being changed, "slow" and "once" for
a long hunt.  A test that needs what this machine lacks is skipped with the reason; in continuous integration (`CI` is
set) it fails instead.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.mounts import require_fuse
from tests.support.node import forked_commands

#: Fixtures of every room: the command line, in this process or as users start it.
pytest_plugins = ["tests.support.logs", "tests.support.commands", "tests.support.dropped"]

_CHECKS = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture)

settings.register_profile(
    "ci", max_examples=300, deadline=None, print_blob=True, suppress_health_check=_CHECKS, report_multiple_bugs=False
)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=30)
settings.register_profile("slow", settings.get_profile("ci"), max_examples=10_000)
settings.register_profile("once", settings.get_profile("ci"), max_examples=100_000)
if os.environ.get("CI"):
    # The same examples each time: a change is judged by what it changes.  New ones are what the other runs are for.
    settings.register_profile("ci", settings.get_profile("ci"), derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
if settings().max_examples >= settings.get_profile("slow").max_examples:
    # A test takes hours.
    os.environ["PYTEST_TIMEOUT"] = "0"

# On a disk, most of the time of many tests would go into the syncing of new databases.
if os.access("/dev/shm", os.W_OK):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

# What a shell starts in the background, or nohup, ignores these; the programs that are tested would inherit it.
for _number, _handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


@pytest.fixture(scope="session", autouse=True)
def _commands_are_forked() -> Iterator[None]:
    with forked_commands():
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say what fixtures imply, and begin with what takes long, for workers to end together.

    `node` starts daemons, and a cluster that is `shared` by the tests of a module must be in one worker.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "node" in fixtures:
            item.add_marker(pytest.mark.process)
        if "shared" in fixtures:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    waiting = sorted(filter(_waits, items), key=_rank)
    others = [item for item in items if not _waits(item)]
    # The view's take longest, and are last in the order of the packages.
    busy = list(filter(_works_long, reversed(others)))
    items[:] = [*_spread(busy, waiting), *itertools.filterfalse(_works_long, others)]


#: Of tests that wait, the longest first.
_WAITING = ("cluster", "fuse", "serf", "process")
#: A cluster waits as long as so many mounts or daemons.
_CLUSTER = 4


def _waits(item: pytest.Item) -> bool:
    """Whether a test waits for daemons most of the time."""
    return any(item.get_closest_marker(marker) is not None for marker in _WAITING)


def _rank(item: pytest.Item) -> list[bool]:
    """Where a test comes among those that wait: first those that may take longer than others."""
    return [item.get_closest_marker(marker) is None for marker in ("timeout", *_WAITING)]


def _works_long(item: pytest.Item) -> bool:
    """Whether a test works for seconds, or plays random examples."""
    is_random = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return is_random or item.get_closest_marker("slow") is not None


def _spread(busy: list[pytest.Item], waiting: list[pytest.Item]) -> list[pytest.Item]:
    """Both, with those that keep a core busy among those that wait, so that no core is idle.

    They come between modules alone, since the next one ends what the tests of a module share.
    """
    weights = [_CLUSTER if item.get_closest_marker("cluster") is not None else 1 for item in waiting]
    found: list[pytest.Item] = []
    taken = done = 0
    for number, item in enumerate(waiting):
        if number and item.path != waiting[number - 1].path:
            due = len(busy) * done // sum(weights)
            found += busy[taken:due]
            taken = due
        found.append(item)
        done += weights[number]
    return found + busy[taken:]


def _missing(marker: str) -> str | None:
    """Why tests with this marker cannot run here, `None` if they can."""
    if marker == "serf":
        return None if shutil.which("serf") else "there is no serf: apt-get install serf"
    if os.geteuid() != 0:
        return "this needs root"
    if marker == "cluster" and not shutil.which("ip"):
        return "there is no ip command: apt-get install iproute2"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("fuse") is not None:
        require_fuse()
    for marker in ("root", "serf", "cluster"):
        if item.get_closest_marker(marker) is None:
            continue
        reason = _missing(marker)
        if reason is not None and os.environ.get("CI"):
            pytest.fail(f"not run in continuous integration: {reason}", pytrace=False)
        if reason is not None:
            pytest.skip(reason)
