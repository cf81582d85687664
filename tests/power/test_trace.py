"""What strace has written."""

from __future__ import annotations

import pytest

from tests.power.trace import Call, calls


def hexadecimal(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


FILE = f"3<{hexadecimal('/home/a, b')}>"
GONE = f"4<{hexadecimal('/home/c')}>(deleted)"


def test_a_call_with_its_arguments() -> None:
    line = f'7 12.000100 pwrite64({FILE}, "{hexadecimal("ab(")}", 3, 4096) = 3 <0.000020>\n'
    (call,), _ = calls([line])
    assert (call.name, call.result, call.position, round(call.ended, 6)) == ("pwrite64", 3, 0, 12.00012)
    assert (call.descriptor(0), call.data(1), call.number(3)) == ((3, b"/home/a, b"), b"ab(", 4096)


def test_a_file_without_a_name_has_none() -> None:
    (call,), _ = calls([f"7 12.0 fsync({GONE}) = 0 <0.1>\n"])
    assert call.descriptor(0) == (4, None)


def test_a_call_that_others_end_within_has_seen_none_of_them() -> None:
    found, cut_off = calls(
        [
            f"7 10.0 fsync({FILE} <unfinished ...>\n",
            f'8 11.0 write({FILE}, "{hexadecimal("x")}", 1) = 1 <0.5>\n',
            "7 12.0 <... fsync resumed>) = 0 <2.5>\n",
            f"8 13.0 fsync({FILE}) = 0 <0.1>\n",
        ]
    )
    assert not cut_off
    assert [(call.name, call.position, call.ended) for call in found] == [
        ("write", 0, 11.5),
        ("fsync", 0, 12.5),
        ("fsync", 2, 13.1),
    ]


def test_what_failed_or_is_no_call_is_left_out() -> None:
    lines = [
        f'7 10.0 unlink("{hexadecimal("/x")}") = -1 ENOENT (No such file or directory) <0.1>\n',
        "7 10.0 +++ killed by SIGKILL +++\n",
    ]
    assert calls(lines) == ([], [])


def test_what_a_kill_has_cut_off_may_have_happened() -> None:
    _, cut_off = calls(
        [
            f'7 10.0 pwrite64({FILE}, "{hexadecimal("abc")}", 3, 0 <unfinished ...>\n',
            f"8 10.0 fsync({FILE} <unfinished ...>) = ?\n",
            f"9 10.0 fsync({FILE}) = ?\n",
            "7 11.0 +++ killed by SIGKILL +++\n",
        ]
    )
    assert [(call.name, call.result) for call in cut_off] == [("fsync", 0), ("fsync", 0), ("pwrite64", 3)]
    assert cut_off[2].data(1) == b"abc"


def test_what_is_not_whole_is_refused() -> None:
    with pytest.raises(ValueError, match="no line of strace"):
        calls(["strace: Process 1 attached\n"])
    with pytest.raises(ValueError, match="cut an argument"):
        Call("write", (FILE, f'"{hexadecimal("x")}"...'), 1, 0.0, 0).data(1)
