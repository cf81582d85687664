"""`eval/REPORT.md`: each figure of the paper with ours, the cases in which we are worse, and the choice of defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import fill

from eval.report import choices, contents, scale, spreading, tables, working
from eval.report.data import Results
from eval.tables import markdown

#: Columns of the text.
_WIDTH = 120
#: (heading, what it shows, draws it)
_Figure = tuple[str, str, Callable[[Results, Path], str | None]]


def _condition(kind: str) -> Callable[[Results, Path], str | None]:
    return lambda results, directory: spreading.by_condition(results, directory, kind)


_FIGURES: Sequence[_Figure] = (
    (
        "Size of the file (paper, figure 9)",
        "A perfect network. The paper gossips every block. BaseFS pushes them over push sessions; without those it "
        "announces changes of more than four events, and the other nodes pull them.",
        spreading.by_size,
    ),
    (
        "Delay (paper, figure 12)",
        "Normally distributed, standard deviation a fifth of the mean, on every packet between any two nodes. An arrow "
        "is a file that was not on all nodes when the run stopped waiting. What delays packets, here and in the next "
        'two figures, is netem or an emulator: column "shaped by".',
        _condition("delay"),
    ),
    (
        "Loss (paper, figure 13)",
        "With a correlation of 25 % by netem's definition, which loses less than its parameter below one half and more "
        "above (10: 1.8 %, 30: 23 %, 50: 50 %, 70: 77 %), as in the paper.",
        _condition("loss"),
    ),
    (
        "Reordering (paper, figure 14)",
        "The share of packets that skip the delay of 100 ms of the others. The paper does not say how long its packets "
        "waited.",
        _condition("reorder"),
    ),
    (
        "Slow links (paper, figure 15)",
        "A token bucket filter on the traffic that each node sends, with a queue of 2 s.",
        _condition("bw"),
    ),
    (
        "Sync alone by its interval (paper, figure 10)",
        "No gossip and no push sessions: a comparison with a random peer every so many seconds. Our traffic counts "
        "whole IP packets, files included. Each file is written as soon as the last one has arrived, so a shorter "
        "interval transfers more of them. The paper does not say what it counted.",
        spreading.by_interval,
    ),
    (
        "The workload (paper, section 5.1, and figure 18)",
        "Writes of 0 to 16 blocks in the paper's shares. The crosses are the paper's median, 90th percentile and "
        "worst of its writes of one block. Community-Lab is rebuilt from the latencies that the paper has published, "
        "drawn at random for each pair of nodes, with some nodes behind routers that translate addresses.",
        working.spread,
    ),
    (
        "Traffic by node (paper, figure 19)",
        "Bytes that each node sent per write during the workload, including idle traffic. The paper wrote every 3 s, "
        "our runs of less than half its size every 0.5 s, so its share of idle traffic is larger.",
        working.balance,
    ),
    (
        "Staleness",
        "The probability that a random node has a change some time after it was written, and that it lacks it. The "
        "solid line is the workload above on real nodes, which share the cores of one machine; the dashed ones are "
        "simulated (docs/scale.md), without mounts: a real node publishes 0.05 s after the close.",
        scale.staleness,
    ),
    (
        "Conflicts",
        "Simulated: authors among 30 nodes change files at random moments. A change conflicts if its author lacks the "
        "last one of that file. Expected: the probability that another author changes it within the time in which a "
        "change arrives, 1 - exp(-rate x time), over all arrivals.",
        scale.conflicts,
    ),
    (
        "Links of Community-Lab (paper, figure 16)",
        "Links of the paper, and links of our network.",
        working.characterisation,
    ),
    ("More nodes (paper, figure 11)", "All nodes share the cores of one machine.", working.scaling),
    (
        "/etc by codec (paper, /etc characterisation)",
        "Events of 512 bytes for each file of this machine's /etc, as a new file and with one line changed. The "
        "paper used another /etc.",
        contents.etc,
    ),
    (
        "Copies of /etc (paper, figures 20 and 21)",
        "A tree is copied over itself, with every file changed each time. The paper used another machine and tree: "
        "compare the shapes, and each BaseFS with its own ext4. A write is the time of `cp`, after which BaseFS still "
        "publishes.",
        contents.files,
    ),
)
#: Those that belong to the choice of defaults.
_CHOICES: Sequence[_Figure] = (
    (
        "MAX_BLOCK_MESSAGES",
        "Bursts of more events than this are announced and pulled. Measured without push sessions, where the limit "
        "matters. Medians of nine files each.",
        choices.by_limit,
    ),
    (
        "Jitter of pulls",
        "Each node waits a random part of it before it pulls an announced change. Measured without push sessions.",
        choices.by_jitter,
    ),
    (
        "Quiet window",
        "Fourteen ways to save a file (docs/saving.md), each of which should cost one entry.",
        choices.by_window,
    ),
)


def write_report(results: Results, path: Path, directory: Path) -> None:
    """Draw all figures that rows are there for, and write the report about them.

    Args:
        results: rows of our experiments.
        path: of the report.
        directory: for the figures.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(_lines(results, path, directory)) + "\n")


def _lines(results: Results, path: Path, directory: Path) -> Iterator[str]:
    yield "# Evaluation"
    yield ""
    yield _INTRODUCTION
    yield from _section("What was run", tables.provenance(results), _RUN)
    yield from _section("What failed", tables.failures(results))
    for drawn in _FIGURES:
        yield from _figure(drawn, "##", results, path, directory)
    about = fill(" ".join(filter(None, (_CONDITIONS, tables.shaped(results), tables.mode_versions(results)))), _WIDTH)
    yield from _section("All conditions", tables.conditions(results), about)
    yield from _section("Peers", tables.peers(results), _PEERS)
    worse = tables.worse(results)
    yield from ("## Where BaseFS is worse", "", *map(_item, worse), "")
    yield from ("## The choice of defaults", "", *map(_item, tables.defaults(results)), "")
    for drawn in _CHOICES:
        yield from _figure(drawn, "###", results, path, directory)


def _figure(drawn: _Figure, level: str, results: Results, path: Path, directory: Path) -> Iterator[str]:
    heading, about, draw = drawn
    name = draw(results, directory)
    if name is not None:
        link = f"![{heading}]({(directory / name).relative_to(path.parent)})"
        yield from (f"{level} {heading}", "", fill(about, _WIDTH), "", link, "")
        table = _TABLES.get(draw)
        if table is not None:
            yield from (markdown(table(results)), "")


def _item(text: str) -> str:
    # A line that begins with '>' would be a quotation.
    text = text.replace("> ", "more than ")
    return fill(text, _WIDTH, initial_indent="- ", subsequent_indent="  ")


def _section(heading: str, rows: Sequence[dict[str, object]], about: str = "") -> Iterator[str]:
    if rows:
        yield from (f"## {heading}", "", *([about, ""] if about else []), markdown(rows), "")


_TABLES: dict[Callable[[Results, Path], str | None], Callable[[Results], list[dict[str, object]]]] = {
    working.spread: tables.workload,
    working.scaling: tables.scaling,
    contents.files: tables.files,
}

_INTRODUCTION = """\
`python -m eval` writes this report from the CSV files beside it; do not edit it. `--report` writes it without
measuring. Our figures come from real nodes, each with a Serf agent and a mount, in network namespaces or Docker
containers of one machine. The paper's figures are its own data (`eval/paper`), from another machine, with 30 nodes.
Times are seconds until a file is on *all* nodes, unless said otherwise. All nodes share the cores of one machine with
other work (column "load": runnable processes per core), so our times are rather too high. Fewer nodes than in the paper
(column "nodes") make it easier for us.
"""
_RUN = """\
Rows without a commit are older than that column: single runs of one seed, on a machine of which only the kernel is
known, mostly of code that was committed later or never (`-dirty`)."""
_CONDITIONS = """\
Seconds to all nodes: the median of n files, the minimum and the maximum. "> N": half of the files or more had not
arrived when the run stopped waiting after N s; "late": the number of those. "Without push sessions" is the method of
the paper: gossip, a periodic sync and pulls."""
_PEERS = """\
A small change to all nodes, in one run: in files with BaseFS and Syncthing, at event listeners with Serf, at watchers
with etcd. Syncthing collects changes for up to 10 s, its default (`fsWatcherDelayS`). Raw Serf has the timing of the
wan profile, as below BaseFS."""
