"""A release of Serf, from a web server on this machine."""

from __future__ import annotations

import hashlib
import platform
import shutil
from pathlib import Path

import pytest

from basefs.daemon.serf.release import CHECKSUMS, PLATFORMS, VERSION, Release
from basefs.errors import AgentError
from basefs.gossip.binary import find_serf, version_of
from tests.support.releases import OTHER, publish, web


def install(release: Release, target: Path) -> str:
    told: list[tuple[int, int | None]] = []
    path = release.install(target, lambda done, total: told.append((done, total)))
    # The last word is that all of it has come.
    assert told and told[-1][0] == told[-1][1]
    return path


def refused(release: Release, target: Path) -> str:
    """Why it is not installed; nothing is left behind."""
    with pytest.raises(AgentError) as caught:
        release.install(target, lambda done, total: None)
    assert not target.exists() or list(target.iterdir()) == []
    return str(caught.value)


@pytest.mark.serf
def test_the_real_program_with_a_published_checksum(tmp_path: Path) -> None:
    publish(tmp_path / "web", OTHER, Path(find_serf()).read_bytes())
    with web(tmp_path / "web") as url:
        path = install(Release(url, OTHER), tmp_path / "bin")
    assert path == str(tmp_path / "bin" / "serf")
    assert version_of(path) == version_of(find_serf())
    assert [file.name for file in (tmp_path / "bin").iterdir()] == ["serf"]


def test_a_given_checksum_comes_before_the_published_one(tmp_path: Path) -> None:
    checksum = publish(tmp_path / "web", OTHER, b"#!/bin/sh\necho Serf v0.9.9\n", sums=False)
    with web(tmp_path / "web") as url:
        assert version_of(install(Release(url, OTHER, checksum.upper()), tmp_path / "bin")) == (0, 9, 9)
        assert "has a wrong checksum" in refused(Release(url, OTHER, "0" * 64), tmp_path / "other")


def test_the_default_version_must_be_the_one_that_is_known(tmp_path: Path) -> None:
    # With a published list that says otherwise: who changes the archive changes the list as well.
    publish(tmp_path / "web", VERSION, b"#!/bin/sh\necho Serf v0.8.2; touch evil\n")
    with web(tmp_path / "web") as url:
        assert CHECKSUMS[VERSION, PLATFORMS[platform.machine()]] in refused(Release(url), tmp_path / "bin")


def test_an_archive_that_was_changed(tmp_path: Path) -> None:
    publish(tmp_path / "web", OTHER, b"#!/bin/sh\necho Serf v0.9.9\n")
    archive = tmp_path / "web" / OTHER / Release(version=OTHER).archive
    archive.write_bytes(archive.read_bytes() + b"\0")
    with web(tmp_path / "web") as url:
        assert "nothing was installed" in refused(Release(url, OTHER), tmp_path / "bin")


def test_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    with web(tmp_path / "web") as url:
        assert "404" in refused(Release(url, OTHER), tmp_path / "bin")
        assert "404" in refused(Release(url), tmp_path / "bin")
        publish(tmp_path / "web", "0.9.8", b"x")
        shutil.move(tmp_path / "web" / "0.9.8" / "serf_0.9.8_SHA256SUMS", tmp_path / "web" / "list")
        (tmp_path / "web" / "0.9.8" / "serf_0.9.8_SHA256SUMS").write_text(f"{'0' * 64}  another.zip\n")
        assert "give it with --sha256" in refused(Release(url, "0.9.8"), tmp_path / "bin")
    assert "cannot be downloaded" in refused(Release(url, OTHER), tmp_path / "bin")
    assert "cannot be downloaded" in refused(Release("nonsense", OTHER), tmp_path / "bin")


def test_a_download_that_breaks_off(tmp_path: Path) -> None:
    checksum = publish(tmp_path / "web", OTHER, bytes(range(256)) * 1000)
    with web(tmp_path / "web", cut=100) as url:
        said = refused(Release(url, OTHER, checksum), tmp_path / "bin")
    assert "ended after 100 of" in said or "broke off" in said


def test_archives_of_something_else(tmp_path: Path) -> None:
    publish(tmp_path / "web", "0.9.1", b"x", name="readme")
    publish(tmp_path / "web", "0.9.2", b"#!/bin/sh\necho Serf v0.7.0\n")
    publish(tmp_path / "web", "0.9.3", b"no program")
    place = tmp_path / "web" / "0.9.4"
    place.mkdir()
    archive = place / Release(version="0.9.4").archive
    archive.write_bytes(b"no archive")
    sha = hashlib.sha256(b"no archive").hexdigest()
    with web(tmp_path / "web") as url:
        assert "holds no program" in refused(Release(url, "0.9.1"), tmp_path / "bin")
        assert "is too old" in refused(Release(url, "0.9.2"), tmp_path / "bin")
        assert "cannot be run" in refused(Release(url, "0.9.3"), tmp_path / "bin")
        assert "holds no program" in refused(Release(url, "0.9.4", sha), tmp_path / "bin")


def test_a_machine_without_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "sparc64")
    assert "sparc64" in refused(Release("http://127.0.0.1:1"), tmp_path / "bin")
