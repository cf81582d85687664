"""The record of who has everything."""

from __future__ import annotations

from pathlib import Path

from basefs.daemon.handover import HandOver

WARNING = "no other machine has confirmed that it has all of conf"


def test_a_member_that_has_everything_is_enough(tmp_path: Path) -> None:
    HandOver("00", "beta").save(tmp_path)
    assert HandOver.warning(tmp_path, "conf") == HandOver.warning(tmp_path, "conf", "00") == ""
    assert HandOver.warning(tmp_path, "conf", "01") == f"{WARNING} since it was used last"


def test_what_the_others_lack_is_said(tmp_path: Path) -> None:
    HandOver("00", "", ("beta lacks 1 entry", "gamma does not answer")).save(tmp_path)
    assert HandOver.warning(tmp_path, "conf", "00") == f"{WARNING}: beta lacks 1 entry; gamma does not answer"


def test_others_that_were_not_seen_have_confirmed_nothing(tmp_path: Path) -> None:
    HandOver("00", "").save(tmp_path)
    assert HandOver.warning(tmp_path, "conf") == HandOver.warning(tmp_path, "conf", "00") == WARNING
