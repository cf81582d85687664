"""A daemon's filesystem, started on what a disk holds after a power cut."""

from __future__ import annotations

import logging
import os
import pathlib
from collections.abc import Mapping

from basefs.errors import BaseFSError, IncompleteContent
from basefs.log.check import check
from basefs.log.keys import SigningKey
from basefs.path import Path
from basefs.replica.replica import LOG_FILE, Replica
from basefs.view.states import Kind
from tests.fs.local import Local, abandon
from tests.power.history import ELSEWHERE

#: What is in every filesystem.
_ALWAYS = ".cluster"
#: What a daemon may say of what it finds.
_KNOWN = ("lost the last save of", "kept on this node only: blocks of")


def write_tree(target: pathlib.Path, tree: Mapping[bytes, bytes | None]) -> None:
    """Make these files and directories below a new directory."""
    target.mkdir()
    for path, content in sorted(tree.items()):
        place = target / os.fsdecode(path)
        if content is None:
            place.mkdir()
        else:
            place.write_bytes(content)


def contents(local: Local) -> dict[str, bytes]:
    """All that a filesystem shows: files with their contents, directories with their paths."""
    found: dict[str, bytes] = {}
    todo: list[Path] = [()]
    while todo:
        above = todo.pop()
        for name, (kind, _) in local.fs.working.kinds(above).items():
            names = (*above, name)
            text = b"/".join(names).decode()
            if kind is Kind.DIRECTORY:
                found[text] = text.encode()
                todo.append(names)
            else:
                try:
                    found[text] = local.load(names)
                except IncompleteContent:
                    found[text] = ELSEWHERE
    assert found.pop(_ALWAYS) is not None
    return found


class _Complaints(logging.Handler):
    """The unexpected log records."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not any(known in record.getMessage() for known in _KNOWN):
            self.found.append(self.format(record))


def recover(directory: pathlib.Path, key: SigningKey) -> tuple[dict[str, bytes], list[str]]:
    """What a filesystem shows that is started in a directory, and everything that is wrong with it."""
    complaints = _Complaints()
    logging.getLogger("basefs").addHandler(complaints)
    try:
        found, problems = _recover(directory, key)
    except (BaseFSError, OSError) as error:
        found, problems = {}, [f"it does not start: {error!r}"]
    finally:
        logging.getLogger("basefs").removeHandler(complaints)
    return found, problems + complaints.found


def _recover(directory: pathlib.Path, key: SigningKey) -> tuple[dict[str, bytes], list[str]]:
    problems: list[str] = []
    local = Local(Replica(directory, [key]))
    try:
        found = contents(local)
        local.publish()
        if local.fs.unpublished() > sum(content == ELSEWHERE for content in found.values()):
            problems.append(f"{local.fs.unpublished()} names are not published")
        shown = contents(local)
        problems.extend(f"{path}: changed by being published" for path in _differing(found, shown))
        problems.extend(map(str, check(directory / LOG_FILE)))
        problems.extend(f"the view of {names} is not that of the log" for names in local.replica.check_view())
    finally:
        spools = local.spools()
        local.fs.close()
        local.replica.close()
        # A daemon that ends leaves them to the kernel; here hundreds of them would stay open.
        abandon(spools)
    return found, problems


def _differing(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> list[str]:
    return sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))
