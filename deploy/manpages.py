"""Manual pages from what --help says: one for `basefs` and one for each command, and that of the helper of mount(8).

    python -m deploy.manpages DIRECTORY

Written with the macros of man(7).  The date is that of $SOURCE_DATE_EPOCH (UNIX seconds), or today.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import click

from basefs import __version__
from basefs.management import mounthelper
from basefs.management.main import COMMANDS, basefs

#: What every command obeys; (tag, text) of each section.
_COMMON = {
    "EXIT STATUS": (
        ("0", "Done, nothing to do, or nothing to list."),
        ("1", "Failed; one line on standard error says why, and what to type."),
        ("2", "The command line has to be changed."),
        ("3", "Declined: a question was answered with no, and nothing was changed."),
        ("130", "Interrupted with Ctrl-C."),
    ),
    "ENVIRONMENT": (
        (
            "BASEFS_HOME",
            "Where this node keeps its state. Default: ~/.basefs; for root /var/lib/basefs, if only that exists.",
        ),
    ),
}
_HELPER = (
    "mount(8) runs this program, as /sbin/mount.fuse.basefs, for the type fuse.basefs; it becomes 'basefs mount'.",
    "The source is basefs:NAME, as the list of mounts shows it; so 'mount -a' recognises a filesystem that is mounted.",
    "The options of 'basefs mount' are written without dashes: single-node, bind=10.0.0.1, key=/root/other. "
    "home=DIRECTORY names $BASEFS_HOME. Options for mount(8) itself, such as nofail and x-systemd.automount, are left "
    "out, and all others, such as ro, go to FUSE.",
)
_FILES = (
    ("$BASEFS_HOME/key", "The node's private key."),
    ("$BASEFS_HOME/config", "Settings of the network."),
    ("$BASEFS_HOME/fs/NAME/", "The log of a filesystem."),
    ("$BASEFS_HOME/logs/NAME.log", "Log messages of a daemon in the background."),
)


def main() -> None:
    """Write all pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (directory / name).write_text(text)


def pages() -> Iterator[tuple[str, str]]:
    """File names and contents of all pages."""
    yield "basefs.1", _overview()
    for name in COMMANDS:
        yield f"basefs-{name}.1", _page(name)
    yield "mount.fuse.basefs.8", _helper()


def escape(text: str) -> str:
    """Text as roff takes it literally."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti").replace("^", "\\(ha")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def _head(name: str, section: int, summary: str) -> list[str]:
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())))
    return [
        f'.TH {name.upper()} {section} {date} "basefs {__version__}" "BaseFS"',
        *(".SH NAME", f"{escape(name)} \\- {escape(summary)}"),
    ]


def _overview() -> str:
    summary, *paragraphs = _paragraphs(basefs.help or "")
    lines = _head("basefs", 1, summary.rstrip("."))
    lines += [".SH SYNOPSIS", ".B basefs", ".I COMMAND", "[\\fIARGUMENT\\fR]..."]
    lines += [".SH DESCRIPTION", *_flow(paragraphs), ".SH COMMANDS"]
    for name in COMMANDS:
        lines += _tagged(f"\\fBbasefs\\-{escape(name)}\\fR(1)", _summary(_command(name)))
    lines += [*_sections(_COMMON), *_sections({"FILES": _FILES})]
    return _end(lines, ["mount.fuse.basefs(8)"])


def _page(name: str) -> str:
    command = _command(name)
    context = click.Context(command, info_name=name, parent=_root())
    lines = _head(f"basefs-{name}", 1, _summary(command).rstrip("."))
    lines += [
        ".SH SYNOPSIS",
        f"\\fBbasefs {escape(name)}\\fR " + escape(" ".join(command.collect_usage_pieces(context))),
    ]
    lines += [".SH DESCRIPTION", *_flow(_paragraphs(command.help or "")), ".SH OPTIONS"]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1]:
            lines += _tagged(f"\\fB{escape(record[0])}\\fR", record[1])
    lines += _examples(command.epilog or "")
    lines += _sections(_COMMON)
    return _end(lines, ["basefs(1)"])


def _helper() -> str:
    lines = _head("mount.fuse.basefs", 8, "mount a BaseFS filesystem by way of mount(8) and fstab(5)")
    lines += [".SH SYNOPSIS", f"\\fB{escape(mounthelper.USAGE)}\\fR"]
    lines += [".SH DESCRIPTION", *_flow(list(_HELPER)), ".SH EXAMPLES", "A line of fstab(5):", ".PP", ".nf"]
    lines += [escape("basefs:conf /cluster fuse.basefs bind=10.0.0.1,nofail,_netdev 0 0"), ".fi", *_sections(_COMMON)]
    return _end(lines, ["basefs-mount(1)", "mount(8)", "fstab(5)"])


def _end(lines: list[str], others: list[str]) -> str:
    references = [re.sub(r"^(.*)(\(\d\))$", r"\\fB\1\\fR\2", escape(other)) for other in others]
    return "\n".join([*lines, ".SH SEE ALSO", ",\n".join(references)]) + "\n"


def _command(name: str) -> click.Command:
    command = basefs.get_command(_root(), name)
    assert command is not None
    return command


def _root() -> click.Context:
    return click.Context(basefs, info_name="basefs", **basefs.context_settings)


def _summary(command: click.Command) -> str:
    return _paragraphs(command.help or "")[0]


def _paragraphs(text: str) -> list[str]:
    """The paragraphs of a help text; one that begins with a backspace keeps its lines, as for click."""
    return [part for part in re.split(r"\n\s*\n", inspect.cleandoc(text)) if part.strip("\b\n ")]


def _flow(paragraphs: list[str]) -> Iterator[str]:
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ".PP"
        if paragraph.startswith("\b"):
            yield from (".nf", escape(paragraph.strip("\b\n")), ".fi")
        else:
            yield escape(" ".join(paragraph.split()))


def _tagged(tag: str, text: str) -> list[str]:
    return [".TP", tag, escape(" ".join(text.split())) or "\\&"]


def _sections(sections: dict[str, tuple[tuple[str, str], ...]]) -> Iterator[str]:
    for title, items in sections.items():
        yield f".SH {title}"
        for tag, text in items:
            yield from _tagged(f"\\fB{escape(tag)}\\fR", text)


def _examples(epilog: str) -> list[str]:
    """The section with the examples that the help ends with."""
    lines = [line.strip() for line in epilog.replace("\b", "").splitlines()]
    examples = [escape(line) for line in lines if line and line != "Examples:"]
    return [".SH EXAMPLES", ".nf", *examples, ".fi"] if examples else []


if __name__ == "__main__":
    main()
