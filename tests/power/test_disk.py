"""A disk that loses what was not synced: exactly that, and all the ways."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.power.disk import Disk, Fate, Left, any_fate
from tests.power.trace import Call

PAGE = 4096


class Machine:
    """A process with files below `/home`."""

    def __init__(self, **tree: bytes | None) -> None:
        self.disk = Disk(b"/home", {name.encode(): content for name, content in tree.items()})
        self._calls: list[Call] = []

    def do(self, name: str, *arguments: str, result: int = 0, during: int = 0) -> None:
        """A call in which the last so many others have ended."""
        position = len(self._calls) - during
        self._calls.append(Call(name, arguments, result, float(len(self._calls)), position))

    def end(self) -> Disk:
        """All that was done."""
        self.disk.play(self._calls)
        self._calls = []
        return self.disk

    def open(self, path: str) -> None:
        self.do("openat", "AT_FDCWD", quoted(path), "O_RDWR|O_CREAT", "0600", result=3)

    def write(self, path: str, data: bytes, offset: int) -> None:
        self.do("pwrite64", file(path), quoted(data), str(len(data)), str(offset), result=len(data))

    def sync(self, path: str, during: int = 0) -> None:
        self.do("fsync", file(path), during=during)


def quoted(text: str | bytes) -> str:
    raw = text.encode() if isinstance(text, str) else text
    return '"' + "".join(f"\\x{byte:02x}" for byte in raw) + '"'


def file(path: str) -> str:
    return f"3<{quoted(path)[1:-1]}>"


def fates(disk: Disk, names: Left | None = None) -> Iterator[Fate]:
    chance = random.Random(1)
    for _ in range(300):
        fate = any_fate(chance, disk.kinds())
        yield fate if names is None else Fate(fate.seed, names, fate.data)


def test_what_was_synced_is_there_whatever_happens() -> None:
    machine = Machine()
    machine.open("/home/f")
    machine.write("/home/f", b"a" * PAGE, 0)
    machine.sync("/home/f")
    machine.sync("/home")
    disk = machine.end()
    assert all(disk.after(len(disk), fate) == {b"f": b"a" * PAGE} for fate in fates(disk))
    assert {len(disk.after(len(disk) - 1, fate)) for fate in fates(disk)} == {0, 1}


def test_what_was_not_synced_is_lost_page_by_page_up_to_any_write() -> None:
    machine = Machine(f=b"0" * 2 * PAGE)
    machine.write("/home/f", b"1" * 2 * PAGE, 0)
    machine.write("/home/f", b"2" * PAGE, PAGE)
    disk = machine.end()
    found = {disk.after(2, Fate(seed, Left.ALL, {"f": Left.PAGES}))[b"f"] for seed in range(300)}
    assert found == {first * PAGE + second * PAGE for first in (b"0", b"1") for second in (b"0", b"1", b"2")}
    torn = {disk.after(2, Fate(seed, Left.ALL, {"f": Left.SECTORS}))[b"f"] for seed in range(50)}
    assert any(content is not None and content[:512] != content[512:1024] for content in torn)
    beginnings = {disk.after(2, Fate(seed, Left.ALL, {"f": Left.BEGINNING}))[b"f"] for seed in range(50)}
    assert beginnings == {b"0" * 2 * PAGE, b"1" * 2 * PAGE, b"1" * PAGE + b"2" * PAGE}


def test_a_size_without_its_bytes_reads_as_zeros() -> None:
    machine = Machine(f=b"")
    machine.write("/home/f", b"1" * PAGE, 0)
    machine.do("ftruncate", file("/home/f"), "10")
    disk = machine.end()
    found = {disk.after(2, Fate(seed, Left.ALL, {"f": Left.PAGES}))[b"f"] for seed in range(300)}
    assert {b"", bytes(10), b"1" * 10, bytes(PAGE), b"1" * PAGE} <= found


def test_a_sync_does_not_cover_what_came_while_it_ran() -> None:
    machine = Machine(f=b"")
    machine.write("/home/f", b"1", 0)
    machine.sync("/home/f", during=1)
    disk = machine.end()
    assert disk.after(2, Fate(0, Left.NOTHING, {})) == {b"f": b""}
    assert disk.whole() == {b"f": b"1"}


def test_a_rename_is_there_or_not_and_takes_the_file_along() -> None:
    machine = Machine(old=b"1", new=b"2", d=None)
    machine.do("rename", quoted("/home/new"), quoted("/home/old"))
    machine.do("rename", quoted("/home/d"), quoted("/home/e"))
    machine.open("/home/e/f")
    machine.sync("/home/e")
    disk = machine.end()
    found = [disk.after(4, fate) for fate in fates(disk)]
    assert all(tree.get(b"new") in (b"2", None) for tree in found)
    assert {tree[b"old"] for tree in found} == {b"1", b"2"}
    assert all((tree[b"old"] == b"2") == (b"new" not in tree) for tree in found)
    assert all(tree.get(b"d/f", tree.get(b"e/f")) == b"" for tree in found)


def test_what_it_does_not_know_is_refused() -> None:
    machine = Machine(f=b"")
    machine.do("sendfile", file("/home/f"), "4</elsewhere>")
    with pytest.raises(ValueError, match="does not know: sendfile"):
        machine.end()
