"""The bounded memory of hashes."""

from __future__ import annotations

from basefs.sync.session.recent import Recent


def test_news_is_told_once_and_the_oldest_is_forgotten():
    recent = Recent[bytes, int](2)
    assert recent.note(b"a", 1) and recent.note(b"b", 2)
    assert not recent.note(b"a", 3), "seen again, so it is younger than b now"
    assert recent.note(b"c", 4)
    assert list(recent.items()) == [(b"a", 3), (b"c", 4)]
    assert recent.note(b"b", 5), "forgotten, so it is news"
