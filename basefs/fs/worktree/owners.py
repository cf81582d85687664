"""Owners: users and groups as this machine shows and keeps them (docs/posix.md)."""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Callable
from dataclasses import dataclass

from basefs.view.states import Owner

#: The id that shows for a name without one on this machine: the kernel's own for owners that it cannot map (nobody,
#: nogroup).  Never that of the mounting user: programs trust what root owns.
STRANGER = 65534
#: Seconds for which an answer of the name service holds, and after which a name that it did not know is asked again.
KNOWN_SECONDS = 60.0
_MAX_NAME = 255
#: A change of these changes the answers at once.
_FILES = ("/etc/passwd", "/etc/group")


def _version() -> object:
    """Another value after each change of the files; name services have none."""
    found: list[tuple[int, int] | None] = []
    for file in _FILES:
        try:
            status = os.stat(file)
            found.append((status.st_ino, status.st_mtime_ns))
        except OSError:
            found.append(None)
    return found


@dataclass(frozen=True, slots=True)
class Names:
    """The users and groups of a machine.  Each call raises `KeyError` for what it does not know.

    Attributes:
        version: another value where all answers may have changed.
    """

    user_id: Callable[[bytes], int] = lambda name: pwd.getpwnam(os.fsdecode(name)).pw_uid
    group_id: Callable[[bytes], int] = lambda name: grp.getgrnam(os.fsdecode(name)).gr_gid
    user_name: Callable[[int], bytes] = lambda uid: os.fsencode(pwd.getpwuid(uid).pw_name)
    group_name: Callable[[int], bytes] = lambda gid: os.fsencode(grp.getgrgid(gid).gr_name)
    version: Callable[[], object] = _version


#: Those of the machine that this process runs on.
THESE_NAMES = Names()


class Owners:
    """Maps the names in the log to ids on this machine and back.

    Names travel, since ids mean nothing on another machine; an id without a name travels as a number.  Name services
    may be slow, so nothing that applications wait for asks them.

    Attributes:
        keeps: whether owners are stored and shown.
    """

    def __init__(self, uid: int, gid: int, *, keep: bool, names: Names = THESE_NAMES) -> None:
        """`uid` and `gid` own whatever has no owner of its own."""
        self.uid = uid
        self.gid = gid
        self.keeps = keep
        self._answers: dict[tuple[Callable[..., int | bytes], int | bytes], tuple[float, int | bytes | None]] = {}
        self._names = names
        self._version = names.version()

    def ids(self, owner: Owner | None) -> tuple[int, int]:
        """User and group id of a path; `STRANGER` for a name that is unknown here."""
        if owner is None or not self.keeps:
            return self.uid, self.gid
        return (
            self._id(self._names.user_id, owner.user, owner.uid),
            self._id(self._names.group_id, owner.group, owner.gid),
        )

    def _id(self, ask: Callable[[bytes], int], name: bytes, number: int) -> int:
        if not name:
            return number
        found = self._ask(ask, name)
        return STRANGER if found is None else int(found)

    def maker(self, uid: int, gid: int) -> Owner | None:
        """The owner to record for what has these ids; `None` for the mounting user, or if owners are not kept."""
        if not self.keeps or (uid, gid) == (self.uid, self.gid):
            return None
        user, group = self._ask(self._names.user_name, uid), self._ask(self._names.group_name, gid)
        return Owner(user if isinstance(user, bytes) else b"", group if isinstance(group, bytes) else b"", uid, gid)

    def have_changed(self) -> bool:
        """Whether names may mean other ids than when this was last called."""
        version = self._names.version()
        if version != self._version:
            self._version = version
            self._answers.clear()
            return True
        known = False
        for (ask, key), (until, answer) in list(self._answers.items()):
            if answer is None and until < time.monotonic():
                del self._answers[ask, key]
                known = self._ask(ask, key) is not None or known
        return known

    def _ask(self, ask: Callable[..., int | bytes], key: int | bytes) -> int | bytes | None:
        now = time.monotonic()
        found = self._answers.get((ask, key))
        # A name that is unknown is asked for again by `have_changed`, so that its answer is noticed.
        if found is not None and (found[1] is None or found[0] > now):
            return found[1]
        try:
            answer: int | bytes | None = ask(key)
        except (KeyError, ValueError, OSError, OverflowError):
            answer = None
        if isinstance(answer, bytes) and len(answer) > _MAX_NAME:
            answer = None
        self._answers[ask, key] = now + KNOWN_SECONDS, answer
        return answer
