"""How long a connection is waited for."""

from __future__ import annotations

import pytest

from basefs.sync.net.transport import patience


@pytest.mark.parametrize(
    ("round_trip", "seconds"),
    [(0.0, 5.0), (0.1, 5.0), (5.0, 15.0), (120.0, 20.0)],
)
def test_a_connection_is_waited_for_as_long_as_links_are_and_a_single_bad_one_delays_others_little(round_trip, seconds):
    assert patience(round_trip) == seconds
