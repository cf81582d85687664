"""What strace has written, as calls: `strace -f -y -ttt -T -xx`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

#: The traced calls: all that change files or names, or make them durable, and the offsets of writes.
CALLS = (
    *("open", "openat", "creat", "lseek", "write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile", "splice"),
    *("ftruncate", "truncate", "fallocate", "copy_file_range", "fsync", "fdatasync", "sync", "syncfs"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "mknod", "mknodat"),
    *("link", "linkat", "symlink", "symlinkat"),
)

_LINE = re.compile(r"(\d+) +(\d+\.\d+) (.*)", re.DOTALL)
_WHOLE = re.compile(r"(\w+)\((.*)\) += (-?\d+|\?)(?:<.*?>)?(?:\(deleted\))?(?: .*?)??(?: <(\d+\.\d+)>)?", re.DOTALL)
_UNFINISHED = " <unfinished ...>"
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)", re.DOTALL)
_BYTE = re.compile(r"\\x([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that succeeded.

    Attributes:
        name: of the call.
        arguments: as strace prints them.
        result: what it returned.
        ended: UNIX seconds.
        position: how many calls had ended before this one began.
    """

    name: str
    arguments: tuple[str, ...]
    result: int
    ended: float
    position: int

    def data(self, index: int) -> bytes:
        """The bytes of a quoted argument."""
        text = self.arguments[index]
        if text.endswith("..."):
            raise ValueError(f"strace has cut an argument of {self.name}")
        return unquoted(text)

    def number(self, index: int) -> int:
        """An argument that is a number."""
        return int(self.arguments[index], 0)

    def descriptor(self, index: int) -> tuple[int, bytes | None]:
        """A descriptor and the path that it leads to, `None` where that is removed or none."""
        number, _, rest = self.arguments[index].partition("<")
        path = b"" if rest.endswith("(deleted)") else unquoted(f'"{rest.removesuffix(">")}"')
        # For a call on a directory, where AT_FDCWD stands.
        return (int(number) if number.lstrip("-").isdecimal() else -100), path or None


def unquoted(text: str) -> bytes:
    """The bytes of what strace has printed as hexadecimal digits in quotes."""
    return bytes.fromhex("".join(_BYTE.findall(text)))


def calls(lines: Iterable[str]) -> tuple[list[Call], list[Call]]:
    """The calls that succeeded, in the order in which they ended, and those that the end of the process cut off.

    Of the latter nobody knows whether they had an effect.
    """
    began: dict[str, tuple[float, str, int]] = {}
    ended: list[Call] = []
    cut_off: list[Call] = []
    for line in lines:
        found = _LINE.fullmatch(line.rstrip("\n"))
        if found is None:
            raise ValueError(f"no line of strace: {line[:100]!r}")
        thread, time, text = found[1], float(found[2]), found[3]
        position = len(ended)
        if text.endswith(_UNFINISHED):
            began[thread] = (time, text.removesuffix(_UNFINISHED), position)
            continue
        if resumed := _RESUMED.fullmatch(text):
            time, first, position = began.pop(thread)
            text = first + resumed[2]
        whole = _WHOLE.fullmatch(text.replace(f"{_UNFINISHED})", ")"))
        if whole is not None and whole[3] == "?":
            cut_off.append(_cut_off(whole[1], whole[2], time, position))
        elif whole is not None and not whole[3].startswith("-"):
            ended.append(Call(whole[1], tuple(_split(whole[2])), int(whole[3]), time + float(whole[4] or 0), position))
    for time, text, position in began.values():
        name, _, arguments = text.partition("(")
        cut_off.append(_cut_off(name, arguments, time, position))
    return ended, cut_off


def _cut_off(name: str, arguments: str, time: float, position: int) -> Call:
    found = tuple(_split(arguments))
    # What a write that has happened returns.
    return Call(name, found, int(found[2]) if name in ("write", "pwrite64") else 0, time, position)


def _split(text: str) -> Iterator[str]:
    """Arguments; strings are digits, so what groups them is all that needs looking at."""
    depth = begin = 0
    for match in re.finditer(r"[\[{(<]|[\]})>]|, ", text):
        if match[0] == ", ":
            if not depth:
                yield text[begin : match.start()]
                begin = match.end()
        else:
            depth += 1 if match[0] in "[{(<" else -1
    if text:
        yield text[begin:]
