"""The virtual attributes of a path, `user.basefs.*` (docs/posix.md)."""

from __future__ import annotations

from basefs.errors import PathError
from basefs.fs.disk import OWN
from basefs.fs.worktree.index import to_path
from basefs.replica.replica import Replica


def attribute(replica: Replica, path: bytes, name: bytes, *, dirty: bool) -> bytes | None:
    """The value of a virtual attribute; `None` for one that nothing has.  `dirty`: whether the path has changed."""
    where, short = to_path(path), name.removeprefix(OWN)
    outcome = replica.outcomes([where])[where]
    if short == b"state":
        return b"unpublished" if outcome is None else b"pending" if dirty else b"published"
    if outcome is None:
        return None
    tip = outcome.tips[0]
    if short == b"hash":
        return tip.hash.hex().encode()
    if short == b"author":
        known = replica.key_names().get(tip.fingerprint)
        return (known or tip.fingerprint.hex()).encode("utf-8", "surrogateescape")
    try:
        survey = replica.survey(where)
    except PathError:
        return None
    if short == b"conflicts":
        return str(len(survey.conflicts())).encode()
    return str(len(survey.entries)).encode() if short == b"revisions" else None
