"""Names that change places, published in portions of one step: what applications and a new process see in between."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from basefs.replica.replica import Applied, Replica
from basefs.view.states import Kind
from tests.fs.local import CLUSTER, Local
from tests.support.helpers import ROOT_KEY, path


class Face(NamedTuple):
    """What stat(2) and the content tell of a name."""

    kind: Kind
    mode: int
    links: int
    seconds: int
    content: bytes
    names: frozenset[bytes]


def faces(local: Local, directory: tuple[bytes, ...] = ()) -> dict[tuple[bytes, ...], Face]:
    """All that is in a directory; the names of a face are those of the same file."""
    found: dict[tuple[bytes, ...], Face] = {}
    kinds = local.fs.working.kinds(directory)
    for name, (kind, _) in kinds.items():
        names = (*directory, name)
        if names == CLUSTER:
            continue
        told = local.fs.metadata.stat(names)
        content = b""
        if kind is Kind.FILE:
            content = local.load(names)
        elif kind is Kind.SYMLINK:
            content = local.fs.metadata.read_link(names)
        same = frozenset(other for other in kinds if local.fs.metadata.stat((*directory, other)).number == told.number)
        found[names] = Face(kind, told.mode, told.links, told.mtime, content, same)
        if kind is Kind.DIRECTORY:
            found.update(faces(local, names))
    return found


def begin(local: Local) -> None:
    local.save("/f", b"first")
    local.fs.metadata.set_mode(path("/f"), 0o640)
    local.fs.metadata.set_times(path("/f"), 1_500_000_000 * 10**9)
    local.save("/g", b"second")
    local.fs.metadata.set_mode(path("/g"), 0o755)
    local.fs.metadata.set_times(path("/g"), 1_400_000_000 * 10**9)
    local.fs.namespace.make_symlink(path("/s"), b"third")
    local.fs.namespace.make_directory(path("/d"), 0o755)
    local.save("/d/1", b"one")
    local.save("/d/2", b"two")
    local.publish()


def move(local: Local, source: str, target: str, *, exchange: bool = False) -> None:
    local.fs.namespace.rename(path(source), path(target), exchange=exchange)


def rotate(local: Local) -> None:
    move(local, "/g", "/h")
    move(local, "/f", "/g")
    local.save("/f", b"new")


def rotate_links(local: Local) -> None:
    move(local, "/s", "/t")
    local.fs.namespace.make_symlink(path("/s"), b"new")


def back_up(local: Local) -> None:
    move(local, "/f", "/f~")
    local.save("/f", b"new")


def back_up_what_is_open(local: Local) -> None:
    local.fs.files.open(path("/f"), 0)
    back_up(local)


def keep_a_backup_only(local: Local) -> None:
    move(local, "/f", "/f~")


def exchange(local: Local) -> None:
    move(local, "/f", "/s", exchange=True)


def exchange_through_a_scratch_name(local: Local) -> None:
    move(local, "/s", "/a~")
    move(local, "/f", "/s")
    move(local, "/a~", "/f")
    move(local, "/s", "/g", exchange=True)


def exchange_names_of_one_file(local: Local) -> None:
    local.fs.namespace.make_link(path("/h"), path("/f"))
    local.publish()
    move(local, "/h", "/g", exchange=True)
    move(local, "/f", "/s", exchange=True)


def replace_a_directory(local: Local) -> None:
    local.fs.namespace.unlink(path("/d/1"))
    local.fs.namespace.unlink(path("/d/2"))
    local.fs.namespace.remove_directory(path("/d"))
    move(local, "/f", "/d")


def replace_a_directory_by_what_was_in_it(local: Local) -> None:
    move(local, "/d/1", "/h")
    local.fs.namespace.unlink(path("/d/2"))
    local.fs.namespace.remove_directory(path("/d"))
    move(local, "/h", "/d")


CHAINS = [
    rotate,
    rotate_links,
    back_up,
    back_up_what_is_open,
    keep_a_backup_only,
    exchange,
    exchange_through_a_scratch_name,
    exchange_names_of_one_file,
    replace_a_directory,
    replace_a_directory_by_what_was_in_it,
]


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.__name__)
def test_shows_the_same_at_every_moment_and_after_a_restart(
    surrounded: Local, tmp_path: Path, chain: Callable[[Local], None]
) -> None:
    local = surrounded
    begin(local)
    chain(local)
    expected = faces(local)
    seen: list[dict[tuple[bytes, ...], Face]] = []
    images: list[Path] = []

    def look(applied: Applied | None = None) -> None:
        seen.append(faces(local))
        images.append(tmp_path / f"image{len(images)}")
        shutil.copytree(local.replica.directory, images[-1])

    def commit_and_look(commit: Callable[[], Applied]) -> Applied:
        look()
        return commit()

    local.replica.subscribe(look)
    local.surround(commit_and_look)
    local.publish(most=1)
    look()
    assert len(seen) > 2
    assert seen == [expected] * len(seen)
    local.surround(None)
    for image in images:
        again = Local(Replica(image, [ROOT_KEY]))
        try:
            assert faces(again) == expected, image
            again.publish()
            assert faces(again) == expected, image
            assert not [names for names, _ in again.fs.working.overlay.items() if not names[-1].endswith(b"~")]
        finally:
            again.replica.close()
