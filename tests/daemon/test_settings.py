"""The file of settings: what it changes, and how it says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from basefs.daemon.settings import Settings, parse_size
from basefs.errors import UsageError
from tests.support.project import ROOT


def test_without_a_file_everything_has_its_default(tmp_path: Path) -> None:
    assert Settings.load(tmp_path / "config") == Settings()


def test_what_the_file_says_counts_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "# ours\n[basefs]\nprofile = lan\nfull_sync_interval = 2.5\npush_sessions=0 ; none\ngossip = no # ever\n"
        "never_publish = *.lock\n  cache-* # of programs\n"
    )
    assert Settings.load(path) == Settings(
        profile="lan", full_sync_interval=2.5, push_sessions=0, gossip=False, never_publish=("*.lock", "cache-*")
    )
    path.write_text("[basefs]\nmax_log_bytes = 2.5G\n")
    with pytest.raises(UsageError):
        Settings.load(path)
    path.write_text("[basefs]\nmax_log_bytes = 10G\nmin_free = 500 # bytes\n")
    assert Settings.load(path) == Settings(max_log_bytes=10**10, min_free=500)
    path.write_text("")
    assert Settings.load(path) == Settings()


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), ("7", 7), ("7k", 7000), ("7MB", 7 * 10**6), ("1T", 10**12), (" 3g ", 3 * 10**9)]
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[basefs]\nprofil = lan\n", "no setting profil"),
        ("[other]\n", r"no section \[other\]"),
        ("[basefs]\nprofile = fast\n", "profile is one of wan, lan, local, not 'fast'"),
        ("[basefs]\nmax_block_messages = 1.5\n", "a whole number from 0 to 1000, not '1.5'"),
        ("[basefs]\nfull_sync_interval = -1\n", "a number of seconds, without a unit, from 0 to 86400, not '-1'"),
        ("[basefs]\nfull_sync_interval = nan\n", "a number of seconds, without a unit, from 0 to 86400, not 'nan'"),
        ("[basefs]\nquiet_window = 50ms\n", "a number of seconds, without a unit, from 0 to 1, not '50ms'"),
        ("[basefs]\nsync_sessions = 0\n", "a whole number from 1"),
        ("[basefs]\nmin_free = much\n", "min_free: 'much' is not a size: use digits and k, M, G or T"),
        ("[basefs]\nmax_log_bytes = -1\n", "is not a size"),
        ("[basefs]\ngossip = perhaps\n", "gossip is yes or no, not 'perhaps'"),
        ("[basefs]\nnever_publish = *.lock run/x\n", "never_publish: 'run/x' contains '/'"),
        ("[basefs]\nnever_publish = *\n", "never_publish: '\\*' matches every name"),
        ("profile = lan\n", "cannot read"),
        ("[basefs]\nprofile = lan\nprofile = wan\n", "cannot read"),
        ("[basefs]\nprofile = \udcff\n", "cannot read"),
    ],
)
def test_what_is_wrong_is_told_with_the_file(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=reason) as caught:
        Settings.load(path)
    assert str(path) in str(caught.value)


def test_the_documents_show_the_defaults(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "operations.md").read_text()
    start = document.index("    [basefs]\n")
    path = tmp_path / "config"
    path.write_text("\n".join(line[4:] for line in document[start:].split("\n\n")[0].splitlines()))
    assert "push_sessions" in path.read_text()
    assert Settings.load(path) == Settings()
