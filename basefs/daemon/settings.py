"""What a node's owner may change: `$BASEFS_HOME/config`, an INI file (docs/operations.md).

    [basefs]
    profile = lan
    full_sync_interval = 30

What is not there has its default, with the reason, in `basefs/daemon/config.py`.  Options of a command override it.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from basefs.daemon import config
from basefs.errors import UsageError

_SECTION = "basefs"
PROFILES = ("wan", "lan", "local")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one node.

    Attributes:
        profile: Serf's timing: wan, lan or local.
        max_block_messages: gossip events that a burst of changes may cost before it is announced instead; 0: always
            announced (paper, MAX_BLOCK_MESSAGES).
        full_sync_interval: seconds between periodic syncs, 0: none (paper, FULL_SYNC_INTERVAL).
        push_sessions: sessions that stay open for news, 0: none.
        sync_sessions: sessions that others may have with this node at once.
        gossip: whether changes are gossiped or announced at all; without, Serf only lists the members.
        pull_jitter: seconds of which a node waits a random part before it fetches what gossip has told it of.
        quiet_window: seconds without a change after which what was saved is published.
        never_publish: shell patterns of names that never leave this node, besides the built-in ones.
        max_log_bytes: size of a log from which on the contents that other nodes send wait, 0: no limit.
        min_free: bytes free on the disk of the log below which all that they send waits, 0: no limit.
    """

    profile: str = "wan"
    max_block_messages: int = config.MAX_BLOCK_MESSAGES
    full_sync_interval: float = config.FULL_SYNC_INTERVAL
    push_sessions: int = config.PUSH_SESSIONS
    sync_sessions: int = config.SYNC_SESSIONS
    gossip: bool = True
    pull_jitter: float = config.PULL_JITTER
    quiet_window: float = config.QUIET_SECONDS
    never_publish: tuple[str, ...] = ()
    max_log_bytes: int = 0
    min_free: int = 0

    @classmethod
    def load(cls, path: Path) -> Settings:
        """Read a file, which need not exist.  Raises `UsageError`, naming the file and what is wrong in it."""
        parser = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=("#", ";"))
        try:
            with path.open(encoding="utf-8") as file:
                parser.read_file(file)
        except FileNotFoundError:
            return cls()
        except (OSError, UnicodeDecodeError, configparser.Error) as error:
            raise UsageError(f"cannot read {path}: {error}") from None
        for section in parser.sections():
            if section != _SECTION:
                raise UsageError(f"{path}: there is no section [{section}], only [{_SECTION}]")
        found = {}
        known = {field.name: field for field in fields(cls)}
        for name, text in parser[_SECTION].items() if parser.has_section(_SECTION) else ():
            if name not in known:
                raise UsageError(f"{path}: there is no setting {name}; there are {', '.join(sorted(known))}")
            found[name] = _value(path, name, text)
        return cls(**found)  # type: ignore[arg-type]


#: Name -> least and most: whole numbers where both are, else seconds.
_RANGES: dict[str, tuple[float, float]] = {
    "max_block_messages": (0, 1000),
    "full_sync_interval": (0.0, 86_400.0),
    "push_sessions": (0, 100),
    "sync_sessions": (1, 10_000),
    "pull_jitter": (0.0, 60.0),
    "quiet_window": (0.0, 1.0),
}


def check_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """Patterns for `never_publish`.  Raises `UsageError` for one that matches no name, or every one."""
    for pattern in patterns:
        if "/" in pattern:
            raise UsageError(f"{pattern!r} contains '/': a pattern matches single names, such as '*.lock'")
        if not pattern:
            raise UsageError("an empty pattern matches no name: leave it out")
        if not pattern.strip("*"):
            raise UsageError(f"{pattern!r} matches every name: nothing would be published")
    return tuple(patterns)


#: Settings in bytes.
_SIZES = ("max_log_bytes", "min_free")
_SIZE = re.compile(r"([0-9]{1,15})([kMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_size(text: str) -> int:
    """Bytes: `500M`, `2GB`, `0`.  Raises `UsageError`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a size: use digits and k, M, G or T, as in 500M")
    return int(match[1]) * _UNITS[match[2].lower()]


def _value(path: Path, name: str, text: str) -> str | int | float | bool | tuple[str, ...]:
    if name == "never_publish":
        try:
            return check_patterns(text.split())
        except UsageError as error:
            raise UsageError(f"{path}: never_publish: {error}") from None
    if name == "profile":
        if text not in PROFILES:
            raise UsageError(f"{path}: profile is one of {', '.join(PROFILES)}, not {text!r}")
        return text
    if name == "gossip":
        if text not in ("yes", "no"):
            raise UsageError(f"{path}: gossip is yes or no, not {text!r}")
        return text == "yes"
    if name in _SIZES:
        try:
            return parse_size(text)
        except UsageError as error:
            raise UsageError(f"{path}: {name}: {error}") from None
    least, most = _RANGES[name]
    kind = type(least)
    try:
        value = kind(text)
    except ValueError:
        value = kind(least - 1)
    if not least <= value <= most:
        what = "a whole number" if kind is int else "a number of seconds, without a unit,"
        raise UsageError(f"{path}: {name} is {what} from {least:g} to {most:g}, not {text!r}")
    return value
