"""Owners: users and groups as a mount shows and keeps them (docs/posix.md)."""

from __future__ import annotations

import grp
import pwd
from functools import lru_cache

from basefs.errors import NotPermitted
from basefs.view.states import Owner

#: The id that shows for a name without one on this machine: the kernel's own for owners that it cannot map (nobody,
#: nogroup).  Never that of the mounting user: programs trust what root owns.
STRANGER = 65534


class Owners:
    """Maps the names in the log to ids on this machine and back.

    Names travel, since ids mean nothing on another machine; an id without a name travels as decimal digits.
    """

    def __init__(self, uid: int, gid: int, *, keep: bool) -> None:
        """`uid` and `gid` own whatever has no owner of its own; `keep`: whether owners are stored and shown."""
        self.uid = uid
        self.gid = gid
        self._keep = keep

    def ids(self, owner: Owner | None) -> tuple[int, int]:
        """User and group id of a path; `STRANGER` for a name that is unknown here."""
        if owner is None or not self._keep:
            return self.uid, self.gid
        uid, gid = _user_id(owner[0]), _group_id(owner[1])
        return STRANGER if uid is None else uid, STRANGER if gid is None else gid

    def maker(self, uid: int, gid: int) -> Owner | None:
        """The names to record for what a user makes; `None` for who mounts, or if owners are not kept."""
        if not self._keep or (uid, gid) == (self.uid, self.gid):
            return None
        return _user_name(uid), _group_name(gid)

    def names(self, uid: int, gid: int) -> Owner | None:
        """The names to record for a chown; `None` if nothing needs to be recorded.

        Raises `NotPermitted` if owners are not kept and these are not those who mount.
        """
        if self._keep:
            return _user_name(uid), _group_name(gid)
        if (uid, gid) != (self.uid, self.gid):
            raise NotPermitted("owners are not kept: mount as root, without --no-owners")
        return None


@lru_cache(maxsize=1024)
def _user_id(name: bytes) -> int | None:
    try:
        return pwd.getpwnam(name.decode()).pw_uid
    except (KeyError, ValueError):
        return int(name) if name.isdigit() and len(name) < 10 else None


@lru_cache(maxsize=1024)
def _group_id(name: bytes) -> int | None:
    try:
        return grp.getgrnam(name.decode()).gr_gid
    except (KeyError, ValueError):
        return int(name) if name.isdigit() and len(name) < 10 else None


@lru_cache(maxsize=1024)
def _user_name(uid: int) -> bytes:
    try:
        return pwd.getpwuid(uid).pw_name.encode()[:255]
    except KeyError:
        return str(uid).encode()


@lru_cache(maxsize=1024)
def _group_name(gid: int) -> bytes:
    try:
        return grp.getgrgid(gid).gr_name.encode()[:255]
    except KeyError:
        return str(gid).encode()
