"""The table of states and events, and its picture in the documentation."""

from __future__ import annotations

import pytest

from basefs.errors import RemoteProtocolError
from basefs.sync.session.states import TRANSITIONS, Event, Role, State, diagram, follow
from tests.support.project import ROOT

DOCS = ROOT / "docs" / "sync-protocol.md"


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_each_pair_is_listed_or_refused(role, state, event):
    if event in TRANSITIONS[role][state]:
        assert follow(role, state, event) is TRANSITIONS[role][state][event]
    else:
        with pytest.raises(RemoteProtocolError):
            follow(role, state, event)


@pytest.mark.parametrize("role", Role)
def test_table_is_complete_and_ends(role):
    assert set(TRANSITIONS[role]) == set(State)
    for state, row in TRANSITIONS[role].items():
        if state in (State.DONE, State.FAILED):
            assert row == {Event.BROKEN: state}
        elif row:
            assert row[Event.BROKEN] is State.FAILED
            assert row[Event.REFUSE] is State.FAILED


@pytest.mark.parametrize("role", Role)
def test_each_state_but_the_responders_own_is_reachable(role):
    reached = {State.GREETING}
    for _ in State:
        reached |= {target for state in reached for target in TRANSITIONS[role][state].values()}
    assert reached == set(State) - ({State.SETTLED} if role is Role.INITIATOR else set())


@pytest.mark.parametrize("role", Role)
def test_the_diagram_in_the_documentation_is_up_to_date(role):
    assert f"```mermaid\n{diagram(role)}```" in DOCS.read_text()
