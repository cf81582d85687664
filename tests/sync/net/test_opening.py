"""How long a connection is waited for."""

from __future__ import annotations

import pytest

from basefs.sync.net.transport import CONNECT_TIMEOUT, patience


@pytest.mark.parametrize(
    ("round_trip", "seconds"),
    [(0.0, CONNECT_TIMEOUT), (0.1, CONNECT_TIMEOUT), (5.0, 15.0), (120.0, 20.0)],
)
def test_a_connection_is_waited_for_as_long_as_links_are_and_a_single_bad_one_delays_others_little(round_trip, seconds):
    assert patience(CONNECT_TIMEOUT, round_trip) == seconds


def test_who_is_patient_stays_so():
    assert patience(30.0, 0.1) == 30.0
