"""The table of states and events, and its picture in the documentation."""

from __future__ import annotations

import pytest

from basefs.errors import RemoteProtocolError
from basefs.sync.session.states import TRANSITIONS, Role, SessionEvent, SessionState, follow
from tests.support.project import ROOT

DOCS = ROOT / "docs" / "sync-protocol.md"


def diagram(role: Role) -> str:
    """The table of a role as a Mermaid state diagram."""
    out = ["stateDiagram-v2", f"    [*] --> {SessionState.GREETING.value}"]
    for state, row in TRANSITIONS[role].items():
        targets: dict[SessionState, list[str]] = {}
        for event, target in row.items():
            targets.setdefault(target, []).append(event.value)
        if state in (SessionState.DONE, SessionState.FAILED):
            out.append(f"    {state.value} --> [*]")
            continue
        out += [f"    {state.value} --> {target.value}: {', '.join(events)}" for target, events in targets.items()]
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("state", SessionState)
@pytest.mark.parametrize("event", SessionEvent)
def test_each_pair_is_listed_or_refused(role, state, event):
    if event in TRANSITIONS[role][state]:
        assert follow(role, state, event) is TRANSITIONS[role][state][event]
    else:
        with pytest.raises(RemoteProtocolError):
            follow(role, state, event)


@pytest.mark.parametrize("role", Role)
def test_table_is_complete_and_ends(role):
    assert set(TRANSITIONS[role]) == set(SessionState)
    for state, row in TRANSITIONS[role].items():
        if state in (SessionState.DONE, SessionState.FAILED):
            assert row == {SessionEvent.BROKEN: state}
        elif row:
            assert row[SessionEvent.BROKEN] is SessionState.FAILED
            assert row[SessionEvent.REFUSE] is SessionState.FAILED


@pytest.mark.parametrize("role", Role)
def test_each_state_but_the_responders_own_is_reachable(role):
    reached = {SessionState.GREETING}
    for _ in SessionState:
        reached |= {target for state in reached for target in TRANSITIONS[role][state].values()}
    assert reached == set(SessionState) - ({SessionState.SETTLED} if role is Role.INITIATOR else set())


@pytest.mark.parametrize("role", Role)
def test_the_diagram_in_the_documentation_is_up_to_date(role):
    assert f"```mermaid\n{diagram(role)}```" in DOCS.read_text()
