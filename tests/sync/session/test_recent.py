"""The bounded memory of hashes."""

from __future__ import annotations

from basefs.sync.session.push import RecentSet


def test_news_is_told_once_and_the_oldest_is_forgotten():
    recent = RecentSet(2)
    assert recent.add(b"a") and recent.add(b"b")
    assert not recent.add(b"a"), "seen again, so it is younger than b now"
    assert recent.add(b"c")
    assert b"a" in recent and b"c" in recent and b"b" not in recent
    assert recent.add(b"b"), "forgotten, so it is news"
