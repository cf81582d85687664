"""Transcripts in documents: how they are parsed, which outputs count as equal, and that a difference is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.captures import documents
from eval.transcript import Differs, Player, contradictions, normalise, parse, render

DOCUMENT = """# Title

```console
alpha# cat > /srv/x <<'END'
> > quoted
> END
alpha# cat /srv/x
> quoted
beta# true
```

<!-- console
gamma# ls \\
> /srv
-->

```console
$ basefs list
```
"""


class Echo:
    """A machine with prepared output, which records the commands."""

    def __init__(self, *shown: str) -> None:
        self._shown = list(shown)
        self.typed: list[str] = []

    def run(self, command: str) -> str:
        self.typed.append(command)
        return self._shown.pop(0) if len(self._shown) > 1 else self._shown[0]


def play(text: str, *shown: str) -> Echo:
    machine = Echo(*shown)
    player = Player({"alpha": machine})  # type: ignore[dict-item]
    for step in parse(f"```console\n{text}\n```")[0].steps:
        player.check(step)
    return machine


def test_a_document_is_parsed() -> None:
    text = DOCUMENT.replace("$ basefs list\n", "")
    first, hidden, empty = parse(text)
    assert [(step.machine, step.command, step.shown) for step in first.steps] == [
        ("alpha", "cat > /srv/x <<'END'\n> quoted\nEND", []),
        ("alpha", "cat /srv/x", ["> quoted"]),
        ("beta", "true", []),
    ]
    assert [(step.machine, step.command) for step in hidden.steps] == [("gamma", "ls \\\n/srv")]
    assert not empty.steps
    assert render(text, [first, hidden, empty]) == text


def test_a_line_that_belongs_to_no_command_is_refused() -> None:
    with pytest.raises(ValueError, match="no command stands before"):
        parse(DOCUMENT)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("entry 4ad844012a1c", "entry 1be62da6ffff"),
        ("alpha-3f2a1c   alive", "alpha-000000 alive"),
        ("2026-05-01 10:00:00  write", "2031-12-31 23:59:59  write"),
        ("Nov 21 20:48 motd", "Jan  1 00:00 motd"),
        ("2 s ago, 13.5 kB", "11 s ago, 1 kB"),
        ("1234 bytes", "99999 bytes"),
    ],
)
def test_values_of_one_run_are_equal(left: str, right: str) -> None:
    assert normalise(left) == normalise(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("4 entries", "5 entries"),
        ("alive", "failed"),
        ("alpha-3f2a1c alive", "beta-3f2a1c alive"),
        ("10.77.0.1", "10.77.0.2"),
        ("rw-r--r--", "r--r--r--"),
        ("sizes", "sizes of files"),
    ],
)
def test_other_values_differ(left: str, right: str) -> None:
    assert normalise(left) != normalise(right)


def test_different_output_is_reported() -> None:
    with pytest.raises(Differs, match="hello"):
        play("alpha# echo hello\nhello", "goodbye")
    with pytest.raises(Differs, match="goodbye"):
        play("alpha# true", "goodbye")


def test_a_reading_command_is_repeated_and_a_writing_one_is_not() -> None:
    assert len(play("alpha# cat /srv/x\nnew", "old", "old", "new").typed) == 3
    for writes in ("cat /srv/x > /srv/y", "basefs conflicts conf:/x --accept"):
        with pytest.raises(Differs):
            play(f"alpha# {writes}\nnew", "old", "old", "new")


def test_hashes_are_replaced_by_those_of_the_run() -> None:
    story = "alpha# basefs list\naaaaaaaaaaaa x\nbbbbbbbbbbbb y\nalpha# basefs revert conf:/x bbbbbbbbbbbb"
    machine = play(story, "cccccccccccc x\ndddddddddddd y", "")
    assert machine.typed[-1] == "basefs revert conf:/x dddddddddddd"


def test_a_recorded_step_is_that_of_this_run() -> None:
    text = "alpha# basefs list\naaaaaaaaaaaa 2 s\nalpha# basefs log conf:/x aaaaaaaaaaaa\nold aaaaaaaaaaaa"
    steps = parse(f"```console\n{text}\n```")[0].steps
    player = Player({"alpha": Echo("cccccccccccc 5 s", "cccccccccccc 5 s", "new cccccccccccc")})  # type: ignore[dict-item]
    recorded, differs = zip(*map(player.record, steps), strict=True)
    assert differs == (False, True)
    assert [step.command for step in recorded] == ["basefs list", "basefs log conf:/x cccccccccccc"]
    assert [step.shown for step in recorded] == [["cccccccccccc 5 s"], ["new cccccccccccc"]]


def test_hashes_are_learned_from_the_lines_that_are_there_still() -> None:
    text = "alpha# basefs list\naaaaaaaaaaaa x\nalpha# basefs cat conf:/x --at aaaaaaaaaaaa"
    steps = parse(f"```console\n{text}\n```")[0].steps
    machine = Echo("bbbbbbbbbbbb y\ncccccccccccc x")
    player = Player({"alpha": machine})  # type: ignore[dict-item]
    for step in steps:
        player.record(step)
    assert machine.typed[-1] == "basefs cat conf:/x --at cccccccccccc"


def test_no_real_invitation_is_recorded() -> None:
    text = "alpha# basefs invite conf\nbasefs1-madeup\nalpha# cat > x <<END\n> basefs1-madeup\n> END"
    steps = parse(f"```console\n{text}\n```")[0].steps
    machine = Echo("basefs1-real\nvalid", "")
    player = Player({"alpha": machine})  # type: ignore[dict-item]
    assert [line for step in steps for line in player.record(step)[0].lines()] == [
        *text.split("\n")[:2],
        "valid",
        *text.split("\n")[2:],
    ]
    assert "basefs1-real" in machine.typed[-1]


def test_an_entry_with_two_times_is_a_contradiction() -> None:
    def of(*lines: str) -> dict[str, set[str]]:
        return contradictions(parse("\n".join(["```console", "alpha# basefs log conf:/x", *lines, "```"])))

    one, other = "4ad844012a1c  2026-11-24 01:02:03  write  alpha", "* 4ad844012a1c  write  2026-11-24 01:02:04  alpha"
    assert of(one, one, "5ad844012a1c  2026-11-24 01:02:04") == {}
    assert of(one, other) == {"4ad844012a1c": {"2026-11-24 01:02:03", "2026-11-24 01:02:04"}}
    assert of(one, "alpha# basefs log --arrival conf:/x", "4ad844012a1c  2026-11-24 01:02:09  write") == {}


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.stem)
def test_no_document_contradicts_itself(document: Path) -> None:
    assert contradictions(parse(document.read_text())) == {}, "make captures writes it anew"
