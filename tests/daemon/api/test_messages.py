"""Messages of the control API: what is encoded is decoded to the same, and JSON is flat where commands print it so."""

from __future__ import annotations

import json
import threading
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from basefs.daemon.api import messages
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
    message,
)
from basefs.errors import DaemonError

#: Numbers that are equal to themselves, and texts of any bytes.
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))


def instances(kind: type) -> st.SearchStrategy[Any]:
    """Messages of a class with a value for each field, which Hypothesis cannot find before the first instance."""
    fields = {name: hint for name, hint in get_type_hints(kind).items() if name != "command"}
    return st.builds(kind, **{name: st.from_type(hint) for name, hint in fields.items()})


for _kind in vars(messages).values():
    if isinstance(_kind, type) and _kind.__module__ == messages.__name__ and "__new__" in vars(_kind):
        st.register_type_strategy(_kind, instances)


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


def test_a_message_is_whole_for_all_threads_that_make_its_first_instance() -> None:
    for _ in range(50):

        @message
        class Pair:
            """Two values."""

            left: int
            right: str = "default"

        made: list[Pair] = []
        start = threading.Barrier(4)

        def make(kind: type[Pair] = Pair, made: list[Pair] = made, start: threading.Barrier = start) -> None:
            start.wait()
            made.append(kind(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [Pair(1, "default")] * 4 and len(set(made)) == 1
        with pytest.raises(AttributeError):
            made[0].left = 2  # type: ignore[misc]
