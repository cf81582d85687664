"""`make captures`: what the documents show, from the real programs."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import click

from basefs.management.main import COMMANDS, basefs, summary
from eval.ending import end_cleanly
from eval.transcript import Player, contradictions, machines, parse, render

ROOT = Path(__file__).parent.parent
#: The document that has the help texts, and the marks behind which they stand.
COMMANDS_DOCUMENT = ROOT / "docs" / "commands.md"
_HELP = re.compile(r"^<!-- help: (?P<name>\S+) -->\n(?:\n```text\n.*?\n```\n)?", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"^<!-- commands -->\n.*?^<!-- end -->\n", re.MULTILINE | re.DOTALL)
#: Columns of a help text.
_WIDTH = 100


def documents() -> list[Path]:
    """The documents that show commands with what they print."""
    return [path for path in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]) if parse(path.read_text())]


def help_text(name: str) -> str:
    """What `basefs NAME --help` prints."""
    context = click.Context(basefs, info_name="basefs", max_content_width=_WIDTH, terminal_width=_WIDTH)
    command = basefs.get_command(context, name)
    if command is None:
        raise ValueError(f"there is no command {name}")
    names = ["-h", "--help"]
    return command.get_help(command.context_class(command, parent=context, info_name=name, help_option_names=names))


def with_help(text: str) -> str:
    """A document with the help texts of today behind their marks, and the table of commands."""
    text = _HELP.sub(lambda mark: f"<!-- help: {mark['name']} -->\n\n```text\n{help_text(mark['name'])}\n```\n", text)
    rows = [f"| [{name}](#{name}) | {summary(basefs.get_command(click.Context(basefs), name))} |" for name in COMMANDS]
    table = "\n".join(["<!-- commands -->", "| command | what it does |", "| --- | --- |", *rows, "<!-- end -->\n"])
    return _TABLE.sub(lambda _: table, text)


def capture(path: Path) -> bool:
    """Play a document; if its commands show something else now, write down the whole run, and return True.

    Not only the steps that differ: one entry would have the hash or the time of another run in another step.
    """
    text = path.read_text()
    blocks = parse(text)
    changed = bool(contradictions(blocks))
    with tempfile.TemporaryDirectory(prefix="basefs-") as directory, machines(Path(directory)) as found:
        player = Player(found)
        for block in blocks:
            for number, step in enumerate(block.steps):
                block.steps[number], differs = player.record(step)
                changed |= differs
                print("\n".join(block.steps[number].lines()), flush=True)
    if changed:
        path.write_text(render(text, blocks))
    return changed


def main() -> None:
    """Write the help texts anew, and play the documents that are named, or all."""
    end_cleanly()
    COMMANDS_DOCUMENT.write_text(with_help(COMMANDS_DOCUMENT.read_text()))
    for path in [Path(name) for name in sys.argv[1:]] or documents():
        changed = capture(path)
        print(f"== {path.name}: {'changed' if changed else 'as it was'}", flush=True)


if __name__ == "__main__":
    main()
