"""The commands that a document shows, played on machines of their own, and held against the output that it shows.

A block is fenced as `console`, or hidden in a comment that begins with `<!-- console`.  In it a line such as

    alpha# basefs list

is a command on the machine alpha (of alpha, beta and gamma, at 10.77.0.1 to 10.77.0.3, user root), and what follows up
to the next one is what it shows.  The lines of a here-document and those behind a backslash begin with "> ".  All
blocks of a document are one story: the machines are new at its beginning.

Output is compared line by line after `normalise`.  A command that only looks (`LOOKS`) is given again until it shows
what the document shows, because what another machine did takes a moment to arrive.  A hash in a command is the one
that stands for it in this run: the document's own hashes are learned from the output before.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path

from eval.machine import Machine
from tests.support.namespaces import NamespaceNetwork

MACHINES = ("alpha", "beta", "gamma")
#: Seconds until a command that looks must show what the document shows.
PATIENCE = 120.0
#: Seconds between two looks, and how many alike ones are taken for the end of it where nothing is shown yet.
_INTERVAL = 0.3
_ALIKE = 10

_PROMPT = re.compile(rf"({'|'.join(MACHINES)})# (.*)")
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_BASEFS_LOOKS = "blocks|cat|check|conflicts|diff|doctor|keys|list|log|members|show|status"
#: Commands without effect, as a document writes them.
_LOOKS = rf"cat|curl|find|getfattr|grep|head|ls|stat|tail|basefs (?:{_BASEFS_LOOKS})"
LOOKS = re.compile(rf"(?!.* --(?:accept|restore)\b)(?:{_LOOKS})\b[^;&>]*")

#: The message on a terminal while a command waits for a busy machine.
_WAITING = re.compile(r"waiting for the daemon of \S+ .*\.\.\.")

#: An entry as listings show it: its hash, perhaps the action, and the time of signing.
_SIGNED = re.compile(r"\b([0-9a-f]{12})\s+(?:[a-z]+\s+)?(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_INVITATION = re.compile(r"\bbasefs1-[a-z2-7]+")
#: A hash, or the token of an invitation.
_TOKEN = re.compile(rf"{_INVITATION.pattern}|\b[0-9a-f]{{8,}}\b")
#: What differs from run to run, in this order, and what stands for it.
_VOLATILE = (
    (_INVITATION, "<invitation>"),
    (re.compile(r"\b[0-9a-f]{8,}(-\d+)?\b"), "<hash>"),
    (re.compile(rf"\b({'|'.join(MACHINES)})-[0-9a-f]{{6}}\b"), r"\1-<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b[A-Z][a-z]{2} [ \d]\d \d\d:\d\d\b"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|min|h|B|kB|KB|KiB|MB|MiB|GB|GiB|%)(?!\w)"), "<quantity>"),
    (re.compile(r"\bprocess \d+\b"), "process <number>"),
    (re.compile(r"\b\d{3,}\b"), "<number>"),
    (re.compile(r"[ \t]+"), " "),
)


class Differs(Exception):
    """A command shows something else than the document; the message has both."""


@dataclass
class Step:
    """One command of a document.

    Attributes:
        machine: where it is typed.
        command: what is typed, its lines without prompts.
        shown: what the document shows.
        line: number of its line in the document.
    """

    machine: str
    command: str
    shown: list[str]
    line: int

    def is_look(self) -> bool:
        """Whether it may be given again."""
        return LOOKS.fullmatch(self.command) is not None

    def lines(self) -> list[str]:
        """As the document has it."""
        first, *others = self.command.split("\n")
        return [f"{self.machine}# {first}", *(f"> {line}" for line in others), *self.shown]


@dataclass
class Block:
    """The steps between two lines of a document; `start` and `end` are the numbers of these lines, from 0."""

    start: int
    end: int
    steps: list[Step] = field(default_factory=list)


def normalise(text: str) -> str:
    """A line without what differs from run to run: hashes, times, sizes, durations, numbers from 100 on."""
    for pattern, stand_in in _VOLATILE:
        text = pattern.sub(stand_in, text)
    return text.strip()


def parse(text: str) -> list[Block]:
    """The blocks of a document.  Raises `ValueError` for output that no command stands before."""
    blocks = []
    start = None
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if start is None and line in ("```console", "<!-- console"):
            start = number
        elif start is not None and line in ("```", "-->"):
            blocks.append(Block(start, number, _steps(lines, start + 1, number)))
            start = None
    return blocks


def _steps(lines: list[str], start: int, end: int) -> list[Step]:
    steps: list[Step] = []
    for number in range(start, end):
        line = lines[number]
        prompt = _PROMPT.fullmatch(line)
        if prompt is not None:
            steps.append(Step(prompt[1], prompt[2], [], number + 1))
        elif not steps:
            raise ValueError(f"line {number + 1}: no command stands before {line!r}")
        elif line.startswith(">") and not steps[-1].shown and _goes_on(steps[-1].command):
            steps[-1].command += "\n" + line[1:].removeprefix(" ")
        else:
            steps[-1].shown.append(line)
    return steps


def _goes_on(command: str) -> bool:
    """Whether a shell would ask for more."""
    here = _HERE.search(command)
    return command.endswith("\\") or (here is not None and here[2] not in command.split("\n")[1:])


def render(text: str, blocks: list[Block]) -> str:
    """The document with its blocks as they are now."""
    lines = text.split("\n")
    for block in reversed(blocks):
        lines[block.start + 1 : block.end] = [line for step in block.steps for line in step.lines()]
    return "\n".join(lines)


def contradictions(blocks: list[Block]) -> dict[str, set[str]]:
    """The entries of a document that are shown with several times of signing: the times of each, by its hash."""
    found: dict[str, set[str]] = {}
    for block in blocks:
        for step in block.steps:
            # Times of arrival differ from machine to machine.
            if "--arrival" not in step.command:
                for entry, time_of_signing in _SIGNED.findall("\n".join(step.shown)):
                    found.setdefault(entry, set()).add(time_of_signing)
    return {entry: times for entry, times in found.items() if len(times) > 1}


class Player:
    """Plays the steps of one document on its machines."""

    def __init__(self, machines: dict[str, Machine]) -> None:
        self._machines = machines
        #: The document's hashes -> those of this run.
        self._hashes: dict[str, str] = {}

    def check(self, step: Step) -> None:
        """Play a step.  Raises `Differs`."""
        shown = self._play(step, patient=True)
        if not _alike(step.shown, shown):
            raise Differs(_difference(step, shown))
        self._learn(step.shown, shown)

    def record(self, step: Step) -> tuple[Step, bool]:
        """Play a step; returns it as it went in this run, and whether it shows something else than the document."""
        command = self._of_this_run(step.command)
        shown = self._play(step, patient=False)
        self._learn(step.shown, shown)
        recorded = replace(step, command=self._made_up(command), shown=list(map(self._made_up, shown)))
        return recorded, not _alike(step.shown, shown)

    def _made_up(self, text: str) -> str:
        """With the invitations of the document: a real one holds a private key."""
        documented = {ours: theirs for theirs, ours in self._hashes.items()}
        return _INVITATION.sub(lambda token: documented.get(token[0], token[0]), text)

    def _play(self, step: Step, *, patient: bool) -> list[str]:
        """What a command shows; without patience, as soon as that stays the same."""
        machine = self._machines[step.machine]
        command = self._of_this_run(step.command)
        deadline = time.monotonic() + PATIENCE
        alike = 0
        shown = _lines(machine.run(command))
        # Nothing may be shown only because nothing was written down yet.
        while step.is_look() and not self._is_there(step, shown, patient) and time.monotonic() < deadline:
            if alike == _ALIKE and not patient:
                break
            time.sleep(_INTERVAL)
            again = _lines(machine.run(command))
            alike = alike + 1 if _alike(again, shown) else 0
            shown = again
        return shown

    @staticmethod
    def _is_there(step: Step, shown: list[str], patient: bool) -> bool:
        return (bool(shown) or patient) and _alike(step.shown, shown)

    def _of_this_run(self, text: str) -> str:
        return _TOKEN.sub(lambda token: self._hashes.get(token[0], token[0]), text)

    def _learn(self, written: list[str], shown: list[str]) -> None:
        theirs, ours = ([normalise(line) for line in lines] for lines in (written, shown))
        for here, there, size in SequenceMatcher(None, theirs, ours, autojunk=False).get_matching_blocks():
            for one, other in zip(written[here : here + size], shown[there : there + size], strict=True):
                self._hashes.update(zip(_TOKEN.findall(one), _TOKEN.findall(other), strict=True))


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if not _WAITING.fullmatch(line.rstrip())] if text else []


def _alike(left: list[str], right: list[str]) -> bool:
    one, other = ([normalise(line) for line in lines] for lines in (left, right))
    return one == other


def _difference(step: Step, shown: list[str]) -> str:
    where = f"line {step.line}: {step.machine}# {step.command}"
    return "\n".join((where, "-- the document shows", *step.shown, "-- it really shows", *shown))


@contextlib.contextmanager
def machines(directory: Path) -> Iterator[dict[str, Machine]]:
    """The three machines, new, on a network of their own.  Needs root."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(NamespaceNetwork(directory, len(MACHINES)))
        yield {
            name: stack.enter_context(Machine(name, str(node.namespace), directory / name))
            for name, node in zip(MACHINES, network.nodes, strict=True)
        }
