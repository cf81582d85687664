"""Messages of the control API: what is encoded is decoded to the same, and JSON is flat where commands print it so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from basefs.daemon.api.client import Failure, Look
from basefs.daemon.api.messages import (
    REQUESTS,
    GetStatus,
    Request,
    Summary,
    answer_type,
    decode,
    decode_answer,
    decode_request,
    encode,
)
from basefs.errors import DaemonError

#: Numbers that are equal to themselves, and texts of any bytes.
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(encode(value)))


@pytest.mark.parametrize("request_type", REQUESTS.values(), ids=lambda kind: kind.command)
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_requests_and_answers_survive(request_type: type[Request[Any]], data: st.DataObject) -> None:
    request = data.draw(st.from_type(request_type))
    found = decode_request(request.command, through_json(request))
    assert type(found) is request_type
    assert through_json(found) == through_json(request)
    kind = answer_type(request_type)
    answer = data.draw(st.none() if kind in (None, type(None)) else st.from_type(kind))
    assert decode_answer(request, through_json(answer)) == answer


@pytest.mark.parametrize("answer", [1, "text", {}, {"identity": 1}, [], None])
def test_an_answer_of_another_form_is_an_error_of_the_daemon(answer: Any) -> None:
    with pytest.raises(DaemonError, match="cannot decode"):
        decode_answer(GetStatus(), answer)


def test_what_a_stopped_filesystem_does_not_know_is_left_out() -> None:
    summary = Summary("id", "root", False, True, 0, 4, 1, 2, 0, 3)
    assert encode(Look("conf", answer=summary)) == {
        "name": "conf",
        "mountpoint": None,
        "pid": None,
        "state": "stopped",
        "identity": "id",
        "root_hash": "root",
        "open": False,
        "member": True,
        "damaged": 0,
        "incomplete": 4,
        "entries": 1,
        "blocks": 2,
        "orphans": 0,
        "bytes": 3,
    }
    assert encode(Look("conf", state="silent", failure=Failure("why")))["error"] == "why"
    assert decode(Summary, encode(summary)) == summary
