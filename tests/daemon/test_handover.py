"""What is said of a log when it stops, by what was recorded of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from basefs.daemon.handover import HandOver, lack_of
from basefs.sync.net.peers import Lag

ROOT = "ab" * 28
NOBODY = "no other machine has confirmed that it has all of conf"


def test_a_log_that_some_other_has_needs_no_word(tmp_path: Path) -> None:
    HandOver(ROOT, "beta").save(tmp_path)
    assert HandOver.warning(tmp_path, "conf") == HandOver.warning(tmp_path, "conf", ROOT) == ""
    assert HandOver.warning(tmp_path, "conf", "cd" * 28) == f"{NOBODY} since it was used last"


@pytest.mark.parametrize("lacking", [("beta lacks 1 entry", "gamma does not answer"), ()])
def test_a_log_that_nobody_is_known_to_have(tmp_path: Path, lacking: tuple[str, ...]) -> None:
    HandOver(ROOT, "", lacking).save(tmp_path)
    details = f": {'; '.join(lacking)}" if lacking else ""
    assert HandOver.warning(tmp_path, "conf", ROOT) == NOBODY + details


def test_who_had_a_log_has_it_until_it_changes(tmp_path: Path) -> None:
    HandOver(ROOT, "beta").save(tmp_path)
    before = HandOver.take(tmp_path)
    assert HandOver.load(tmp_path) is None
    assert HandOver.holder_before(before, ROOT) == "beta"
    assert HandOver.holder_before(before, "cd" * 28) == HandOver.holder_before(None, ROOT) == ""


@pytest.mark.parametrize(
    ("lag", "answers", "refuses", "text"),
    [
        (None, True, False, "beta does not answer"),
        (Lag(in_step=True), False, False, "beta does not answer"),
        (Lag(behind=1), False, False, "beta does not answer, and has not confirmed 1 entry"),
        (Lag(behind=1), True, True, "beta turned this node away, and has not confirmed 1 entry"),
        (
            Lag(behind=2, missing=1, waiting=1),
            False,
            False,
            "beta does not answer, and has not confirmed 2 entries and 1 content, for which it has no room",
        ),
        (None, False, True, "beta turned this node away"),
        (
            Lag(behind=2, missing=1, waiting=1),
            True,
            False,
            "beta lacks 2 entries and 1 content, for which it has no room",
        ),
        (Lag(missing=2), True, False, "beta lacks 2 contents"),
        (Lag(ahead=1), True, False, "beta has another log"),
    ],
)
def test_why_a_member_may_not_have_everything(lag: Lag | None, answers: bool, refuses: bool, text: str) -> None:
    assert lack_of("beta", lag, answers=answers, refuses=refuses) == text


def test_a_member_that_has_left_is_not_asked_to_answer() -> None:
    assert lack_of("beta", None, answers=False, left=True) == "beta has left"
    assert lack_of("beta", Lag(behind=1), answers=False, left=True) == "beta has left, and has not confirmed 1 entry"
