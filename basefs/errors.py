"""Every error that BaseFS raises on purpose.

    BaseFSError
    |-- UsageError                the command line or an argument makes no sense
    |-- PathError                 a request on a path that cannot be granted
    |   |-- NotFound
    |   |-- Exists
    |   |-- NotADirectory
    |   |-- IsADirectory
    |   |-- NotEmpty
    |   |-- InvalidName
    |   |-- NameTooLong
    |   |-- PermissionDenied      no key of this node may write there
    |   |-- NotPermitted          the operation is not for this user or kind of path
    |   |-- Unsupported           the filesystem has no such operation
    |   `-- TooLarge
    |-- StoreError                the log on disk
    |   |-- DamagedLog            a row does not match its hash
    |   |-- ReadOnly              the filesystem refuses writes until it is repaired
    |   |-- NoSpace               the disk that holds the log is full
    |   |-- IncompleteContent     blocks of a content have not arrived yet
    |   `-- UnreadableContent     its blocks are here and do not decode: an error of one file
    |-- ArchiveError              the file of an export is damaged, or no archive
    |-- ProtocolError (abstract)
    |   |-- RemoteProtocolError   the peer broke the rules: close it, nothing else
    |   |   `-- InvalidEntry      an entry or block that can never be accepted
    |   |       `-- UnsupportedEntry  it needs a later version
    |   `-- LocalProtocolError    we broke the rules: a bug of ours, loud
    |-- NetworkError
    |   |-- PeerUnreachable
    |   |-- WrongFilesystem       the peer serves another filesystem
    |   `-- AgentError            the Serf agent is missing, dead, or refused a command
    `-- DaemonError
        |-- NotRunning            no daemon serves this filesystem
        |-- DaemonGone            it ended while it was answering
        |-- OtherVersion          it is of another version of BaseFS than the command
        |-- AlreadyRunning
        `-- MountFailed

The exit code of each class is in `basefs/management/errors.py`; a test walks
this tree and requires one of each.  Messages are one line: what happened, why, what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def suggestion(word: str, known: Iterable[str]) -> str:
    """` (did you mean WORD?)` for a message about a word that is not known; nothing if none is like it."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


class BaseFSError(Exception):
    """Base of all errors that BaseFS raises on purpose."""


class UsageError(BaseFSError):
    """The command line or an argument makes no sense."""


class PathError(BaseFSError):
    """A request on a path that cannot be granted."""


class NotFound(PathError):
    """The path does not exist."""


class Exists(PathError):
    """The path, or a key of that name, exists already."""


class NotADirectory(PathError):
    """The operation needs a directory, and the path is none."""


class IsADirectory(PathError):
    """The operation needs a file, and the path is a directory."""


class NotEmpty(PathError):
    """The directory still has entries."""


class InvalidName(PathError):
    """The name is empty, or holds a '/' or a NUL byte."""


class NameTooLong(PathError):
    """A name over 255 bytes, a path over 4096 bytes or 256 names, or a link target over 4095."""


class PermissionDenied(PathError):
    """No key of this node is granted on the path or above it."""


class NotPermitted(PathError):
    """The operation is not allowed for this user or on this kind of path."""


class Unsupported(PathError):
    """The filesystem has no such operation."""


class TooLarge(PathError):
    """The content is larger than a file may be, 16 GiB."""


class StoreError(BaseFSError):
    """The log on disk could not be read or written."""


class DamagedLog(StoreError):
    """A row of the log does not match its hash."""


class ReadOnly(StoreError):
    """The filesystem refuses writes until its log is repaired."""


class NoSpace(StoreError):
    """The disk that holds the log is full."""


class IncompleteContent(StoreError):
    """Blocks of this content have not arrived yet."""


class UnreadableContent(StoreError):
    """The blocks of this content are what their writer signed, and no content within the limits of the format."""


class ArchiveError(BaseFSError):
    """The file of an export is damaged, of another format, or no archive."""


class ProtocolError(BaseFSError):
    """A protocol rule was broken.  Abstract: raise one of the two kinds, so that the culprit is always named."""

    def __init__(self, *args: Any) -> None:
        if type(self) is ProtocolError:
            raise TypeError("ProtocolError is abstract: use RemoteProtocolError or LocalProtocolError")
        super().__init__(*args)


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the protocol forbids."""


class InvalidEntry(RemoteProtocolError):
    """An entry or a block that can never be accepted: bad encoding, hash, signature or position."""


class UnsupportedEntry(InvalidEntry):
    """An entry of a later version of BaseFS, which this one cannot accept; `what` says which part is unknown."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} needs a later version of BaseFS: upgrade the package basefs on this node")


class LocalProtocolError(ProtocolError):
    """We tried to send something that the protocol forbids."""


class NetworkError(BaseFSError):
    """A failure between this node and the others."""


class PeerUnreachable(NetworkError):
    """No connection to the peer, or it fell silent."""


class WrongFilesystem(NetworkError):
    """The peer serves another filesystem, or another version of the protocol."""


class AgentError(NetworkError):
    """The Serf agent is missing, does not start, died, or refused a command."""


class DaemonError(BaseFSError):
    """A failure of the daemon of a filesystem, or of the connection to it."""


class NotRunning(DaemonError):
    """No daemon serves this filesystem on this machine."""


class DaemonGone(DaemonError):
    """The daemon ended while it was answering."""


class OtherVersion(DaemonError):
    """The daemon is of another version of BaseFS than the command."""


class AlreadyRunning(DaemonError):
    """A daemon serves this filesystem already."""


class MountFailed(DaemonError):
    """The filesystem could not be mounted or unmounted."""


def some_of(things: Iterable[object]) -> str:
    """For a message: the first three, `a, b, c and 2 more`."""
    names = [str(thing) for thing in things]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def counted(number: int, noun: str) -> str:
    """For a message: `1 block`, `2 blocks`."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun}"
