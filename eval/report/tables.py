"""Tables of the report, and the sentences that follow from rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from basefs.errors import counted
from eval.lab.clusters import JITTERS
from eval.report.data import Point, Results, Row, group, paper, papers
from eval.report.spreading import points, sync_rates
from eval.report.working import WORKLOADS, medians
from eval.rows import FAILED

_BLOCKS = (0, 1, 3, 15, 63, 254)
#: Columns that name a measurement.
_NAMING = ("backend", "nodes", "mode", "condition", "blocks", "number", "peer", "fs", "round", "program")

Rows = list[dict[str, object]]


def provenance(results: Results) -> Rows:
    """What was run, with which versions, at which load."""
    found: Rows = []
    for name in ("convergence", "workload", "scaling", "files", "peers"):
        rows = results.rows(name)
        keyed = group(rows, lambda row: f"{row.get('backend', '-')} {row.get('nodes', '-')} {row['basefs']}")
        for members in keyed.values():
            first = members[0]
            found.append(
                {
                    "rows": f"{name}.csv",
                    "backend": first.get("backend", "-"),
                    "nodes": first.get("nodes", "-"),
                    "number": len(members),
                    "load": f"{statistics.median(float(row['load']) for row in members):.1f}",
                    "shaped by": ", ".join(sorted({row["shaped by"] for row in members if row.get("shaped by")}))
                    or "-",
                    "seed": first.get("seed", "-"),
                    "basefs": first["basefs"],
                    "commit": first.get("commit") or "-",
                    "machine": first.get("machine") or first.get("kernel") or "-",
                    "runs": len({row.get("run", "1") for row in members}),
                    "serf": first["serf"],
                }
            )
    return found


def shaped(results: Results) -> str:
    """What delayed, lost and reordered packets, a sentence; empty where nothing did."""
    rows = [*results.rows("convergence"), *results.rows("workload")]
    names = {row["shaped by"] for row in rows} - {"nothing", ""}
    what = {
        "emulator": "an emulator with netem's definition delays, loses and reorders packets as they arrive at a node",
        "netem": "the kernel's netem delays, loses and reorders packets as a node sends them",
        "tbf": "a token bucket filter limits what a node sends",
    }
    told = [what.get(name, name) for name in sorted(names)]
    return f"In these rows {'; '.join(told)}." if told else ""


def versions(rows: Sequence[Row], names: Mapping[str, str]) -> str:
    """Which code measured each mode, and at which load; empty where nothing is measured.

    Args:
        rows: of all modes.
        names: of the modes that are compared.
    """
    measured = [row for row in rows if row["mode"] in names]
    if not measured:
        return ""
    by_code = group(measured, _code)
    causes = "code and load" if len(by_code) > 1 else "load"
    told = [f"{code} {_loads(members)}: {_named(members, names)}" for code, members in by_code.items()]
    return (
        f"The modes were measured with {counted(len(by_code), 'version')} of the code ({'; '.join(told)}; loads are "
        f"medians for each core); differences between them are partly those of {causes}."
    )


def _loads(rows: Sequence[Row]) -> str:
    """The load of one mode, or the least and the most of several."""
    loads = [
        statistics.median(float(row["load"]) for row in members)
        for members in group(rows, lambda row: row["mode"]).values()
    ]
    least, most = f"{min(loads):.1f}", f"{max(loads):.1f}"
    return f"at a load of {least}" if least == most else f"at loads of {least} to {most}"


def _named(rows: Sequence[Row], names: Mapping[str, str]) -> str:
    return ", ".join(name for mode, name in names.items() if any(row["mode"] == mode for row in rows))


def mode_versions(results: Results) -> str:
    """The same of the modes of which all conditions are listed."""
    names = {mode: f"BaseFS {name}" for mode, name in _OWN_MODES.items()}
    return versions(results.largest("convergence", backend="namespaces"), names)


def _code(row: Row) -> str:
    return row.get("commit") or row["basefs"]


def failures(results: Results) -> Rows:
    """What was tried and gave no figure."""
    found: Rows = []
    for name in ("convergence", "workload", "scaling", "files", "peers", "quiet"):
        for row in results.failed(name):
            what = ", ".join(f"{column} {row[column]}" for column in _NAMING if row.get(column))
            found.append({"rows": f"{name}.csv", "what": what, "why": row[FAILED]})
    return found


def conditions(results: Results) -> Rows:
    """All conditions and sizes: ours in each mode, the paper's."""
    rows = results.largest("convergence", backend="namespaces")
    rows = [row for row in rows if row["mode"] in ("push", "paper", "gossip")]
    found: Rows = []
    for condition in dict.fromkeys(row["condition"] for row in rows):
        for blocks in sorted({int(row["blocks"]) for row in rows}):
            ours = {mode: points(rows, mode, blocks).get(condition) for mode in ("push", "paper", "gossip")}
            if any(ours.values()):
                lost = [row["lost"] for row in rows if row["condition"] == condition and row["lost"]]
                found.append(
                    {
                        "network": condition,
                        "really lost %": f"{100 * statistics.fmean(map(float, lost)):.1f}" if lost else "",
                        "blocks": blocks,
                        "BaseFS": _cell(ours["push"]),
                        "without push sessions": _cell(ours["paper"]),
                        "gossip and pulls": _cell(ours["gossip"]),
                        "paper: gossip": _number(papers("gossip-only", condition, blocks)),
                        "paper: both": _number(papers("gossip+sync", condition, blocks)),
                    }
                )
    return found


def workload(results: Results) -> Rows:
    """Writes of the workload: medians, the worst, how many came to all."""
    found: Rows = []
    for condition, (_, _, title) in WORKLOADS.items():
        for rows in group(results.rows("workload", condition=condition), _series).values():
            times = medians(rows)
            worst = max((float(row["all s"]) for row in rows if row["all s"]), default=None)
            found.append(
                {
                    "network": title,
                    "backend": rows[0]["backend"],
                    "nodes": rows[0]["nodes"],
                    "mode": rows[0]["mode"],
                    "writes": len(rows),
                    "on all nodes": sum(bool(row["all s"]) for row in rows),
                    "root hashes at the end": rows[0].get("root hashes", ""),
                    "least s": _number(min((float(row["all s"]) for row in rows if row["all s"]), default=None)),
                    "median s": "" if times is None else _finite(times[0]),
                    "90 % s": "" if times is None else _finite(times[1]),
                    "worst s": _number(worst),
                }
            )
    return found


def _finite(seconds: float) -> str:
    return "late" if math.isinf(seconds) else f"{seconds:.3g}"


def _series(row: dict[str, str]) -> str:
    return f"{row['backend']} {row['nodes']} {row['mode']}"


def scaling(results: Results) -> Rows:
    """Growing clusters."""
    names = ("backend", "nodes", "start s", "changes", "median s", "all s", "least s", "most s", "idle cores", "load")
    return [_columns(row, (*names, "daemon MiB", "serf MiB")) for row in results.rows("scaling")]


#: What is timed of a copied tree.
_OPERATIONS = ("write", "read", "read-cached")


def files(results: Results) -> Rows:
    """Of each place the first round, and the median of the others."""
    found: Rows = []
    for place, rows in group(results.rows("files"), lambda row: row["fs"]).items():
        last = str(max(int(row["round"]) for row in rows))
        row: dict[str, object] = {"place": place, "rounds": last}
        for operation in _OPERATIONS:
            first, later = _rounds(rows, operation)
            spread = f"(n={len(later)}, {min(later):.3g} to {max(later):.3g})"
            row[f"{operation}, 1st"] = f"{first:.3g}"
            row[f"{operation}, later"] = f"{statistics.median(later):.3g} {spread}"
        found.append(row)
    return found


def _rounds(rows: Sequence[Row], operation: str) -> tuple[float, list[float]]:
    """Seconds of the first round, and of all others."""
    times = {int(row["round"]): float(row["seconds"]) for row in rows if row["operation"] == operation}
    return times[1], [seconds for number, seconds in times.items() if number > 1]


def peers(results: Results) -> Rows:
    """What others need for a small change."""
    names = ("nodes", "peer", "changes", "median s", "all s", "least s", "most s", "x BaseFS", "load")
    return [_columns(row, names) for row in results.rows("peers")]


def _columns(row: Row, names: tuple[str, ...]) -> dict[str, object]:
    """These columns of a row; a column that came later is empty in older rows."""
    return {name: row.get(name) or "not kept" if name in _SPREAD else row.get(name, "") for name in names}


#: What rows say of their changes, and older ones do not.
_SPREAD = ("changes", "least s", "most s")


def _file_times(results: Results) -> list[str]:
    """How much longer operations on files take than on ext4 and on a passthrough."""
    found: list[str] = []
    by_place = group(results.rows("files"), lambda row: row["fs"])
    if {"BaseFS", "disk", "bindfs"} <= set(by_place):
        for operation in _OPERATIONS:
            firsts, laters = zip(
                *(_rounds(by_place[place], operation) for place in ("BaseFS", "disk", "bindfs")), strict=True
            )
            for name, (own, disk, fuse) in (("first round", firsts), ("later rounds", map(statistics.median, laters))):
                found.append(
                    f"Files, {operation}, {name}: {own / disk:.1f} x ext4, {own / fuse:.1f} x a FUSE passthrough in C."
                )
    return found


def worse(results: Results) -> list[str]:
    """Sentences about everything in which a mode of BaseFS is behind the paper, a simpler mode or a peer."""
    rows = results.largest("convergence", backend="namespaces")
    found = [*_behind_paper(results, rows), *_writes_behind_paper(results), *_behind_own_modes(rows)]
    more = [(interval, ours, theirs) for interval, ours, theirs in sync_rates(results) if ours > theirs]
    if more:
        rates = ", ".join(
            f"{ours / 1000:.1f} and {theirs / 1000:.1f} every {every:g} s" for every, ours, theirs in more
        )
        found.append(f"Sync alone, kbit/s that a node sends, ours with headers and files, and the paper's: {rates}.")
    for peer in results.rows("peers"):
        if peer["x BaseFS"] and float(peer["x BaseFS"]) < 1:
            share, nodes = peer["x BaseFS"], peer["nodes"]
            found.append(f"{peer['peer']}, {nodes} nodes: a small change takes it {share} of BaseFS's time.")
    found += _file_times(results)
    for largest in results.rows("scaling")[-1:]:
        found.append(
            f"Memory of a node: {largest['daemon MiB']} MiB, Serf's {largest['serf MiB']} MiB; the paper had 24 MB."
        )
    return found or ["Nowhere in these rows."]


def _behind_paper(results: Results, rows: Sequence[Row]) -> list[str]:
    """Where a mode takes longer than the paper, and where it may, as it was not watched for long enough."""
    found = []
    for mode, name in _OWN_MODES.items():
        slower, unknown = [], []
        for row in conditions(results):
            theirs = [float(str(row[column])) for column in ("paper: gossip", "paper: both") if row[column]]
            ours = points(list(rows), mode, int(str(row["blocks"]))).get(str(row["network"]))
            if ours is None or not theirs:
                continue
            cell = f"{row['network']}, {_blocks(row['blocks'])}: {ours} s, the paper {min(theirs):g} s"
            if ours.missed and ours.waited < min(theirs):
                unknown.append(cell)
            elif ours.missed or (ours.seconds is not None and ours.seconds > min(theirs)):
                slower.append(cell)
        if slower:
            found.append(f"BaseFS {name}, slower than the paper: {'; '.join(slower)}.")
        if unknown:
            why = "unknown, because our runs waited for a shorter time than the paper's"
            found.append(f"BaseFS {name}, {why}: {'; '.join(unknown)}.")
    return found


def _writes_behind_paper(results: Results) -> list[str]:
    """Where the writes of the workload take longer than the paper's writes of one block."""
    found = []
    columns = {"median s": "all_nodes_median_s", "90 % s": "all_nodes_p90_s", "worst s": "all_nodes_max_s"}
    papers_rows = {
        title: paper("convergence", experiment=experiment, messages="1") for experiment, _, title in WORKLOADS.values()
    }
    for row in workload(results):
        for theirs in papers_rows[str(row["network"])]:
            cells = [
                f"{ours[:-2]} {row[ours]} s, the paper {float(theirs[column]):.3g} s"
                for ours, column in columns.items()
                if row[ours] == "late" or (row[ours] and float(str(row[ours])) > float(theirs[column]))
            ]
            if cells:
                mode = _OWN_MODES.get(str(row["mode"]), row["mode"])
                where = f"{row['network']}, {row['nodes']} nodes, beside the paper's writes of one block"
                found.append(f"BaseFS {mode}, writes of the workload, {where}: {'; '.join(cells)}.")
    return found


def _blocks(number: object) -> str:
    return counted(int(str(number)), "block")


#: Our modes by name, the default first.
_OWN_MODES = {
    "push": "as it is",
    "paper": "without push sessions",
    "gossip": "with gossip and pulls only",
}
#: Two modes differ if one median is more than this times the other.
_DIFFERENT = 1.2


def _behind_own_modes(rows: Sequence[Row]) -> list[str]:
    """Where BaseFS as it is takes longer than with less of it turned on."""
    found = []
    for simpler, name in list(_OWN_MODES.items())[1:]:
        cells = []
        for blocks in sorted({int(row["blocks"]) for row in rows}):
            ours, theirs = points(list(rows), "push", blocks), points(list(rows), simpler, blocks)
            for condition in ours.keys() & theirs.keys():
                own, other = ours[condition], theirs[condition]
                if other.seconds is not None and (own.seconds is None or own.seconds > _DIFFERENT * other.seconds):
                    cells.append(f"{condition}, {_blocks(blocks)}: {own} and {other} s")
        if cells:
            found.append(
                f"BaseFS as it is, more than {_DIFFERENT} x the time of BaseFS {name}: {'; '.join(sorted(cells))}."
            )
    return found


def defaults(results: Results) -> list[str]:
    """What the rows say about each default."""
    rows = results.largest("convergence", backend="namespaces")
    found = []
    found += _block_messages(results, rows)
    intervals = {
        mode: Point.of(members) for mode, members in group(rows, lambda row: row["mode"]).items() if "sync-" in mode
    }
    if intervals:
        found.append(
            "FULL_SYNC_INTERVAL = 5 s: sync alone takes "
            + ", ".join(f"{_cell(point)} s at {mode.partition('-')[2]}" for mode, point in intervals.items())
            + " s of interval. It is a safety net: five seconds bound the cost of a lost announcement, and a session "
            "of equal nodes costs some hundred bytes. "
            + versions(rows, {mode: f"{mode.partition('-')[2]} s" for mode in intervals})
        )
    jitters = {mode: points(rows, mode, 254).get("none") for mode in (f"jitter-{seconds:g}" for seconds in JITTERS)}
    if all(jitters.values()):
        found.append(
            "Jitter of pulls = 0.05 s: a file of 254 blocks takes "
            + ", ".join(f"{_cell(point)} s at {mode.partition('-')[2]}" for mode, point in jitters.items())
            + " s. For a file the writing node sends "
            + ", ".join(f"{_kilobytes(results, mode, _WRITER):.0f} kB at {mode.partition('-')[2]}" for mode in jitters)
            + " s (mean of both sizes). The default is the longest jitter that costs no time."
        )
    windows = group(results.rows("quiet"), lambda row: row["window s"])
    if windows:
        cost = {
            float(window): sum(int(row["entries"]) for row in rows) / sum(int(row["files"]) for row in rows)
            for window, rows in windows.items()
        }
        found.append(
            "Quiet window = 50 ms: a changed file costs "
            + ", ".join(f"{cost[window]:.2g} at {1000 * window:g}" for window in sorted(cost))
            + " ms of quiet (entries, mean of all programs). 10 ms were enough here, 50 leave room for a busy machine, "
            "and more only adds latency. A rewrite in place is published at once."
        )
    return found


#: Sizes of files in blocks, and two limits that are compared.
_LIMITED, _FEW_MESSAGES = (0, 1, 3, 7, 15), ("events-0", "events-4")


def _block_messages(results: Results, rows: list[Row]) -> list[str]:
    """What the rows say about MAX_BLOCK_MESSAGES, at all sizes."""
    cells, apart = [], []
    for blocks in _LIMITED:
        none, four = (points(rows, mode, blocks).get("none") for mode in _FEW_MESSAGES)
        if none is None or four is None:
            return []
        cells.append(f"{_blocks(blocks)} {none} s at 0 and {four} s at 4")
        if none.most < four.least or four.most < none.least:
            apart.append(_blocks(blocks))
    many = points(rows, "events-16", _LIMITED[-1]).get("none")
    sent = [_kilobytes(results, mode) for mode in _FEW_MESSAGES]
    verdict = f"apart only for {', '.join(apart)}" if apart else "not apart at any size, so these rows do not decide"
    text = f"MAX_BLOCK_MESSAGES = 4: without push sessions {'; '.join(cells)}. The ranges are {verdict}"
    text += f"; with 4 a node sends {sent[1]:.1f} kB a file, with 0 {sent[0]:.1f}." if all(sent) else "."
    if many is not None:
        text += f" With 16, {_blocks(_LIMITED[-1])} take {many} s, since Serf carries few events a second."
    return [
        f"{text} The reason for 4 is not measured: where packets are lost connections stall, and events arrive through "
        "other nodes; with push sessions gossip is used in that case only."
    ]


#: The node of a lab that writes.
_WRITER = {"node": "0"}


def _kilobytes(results: Results, mode: str, of: Mapping[str, str] = MappingProxyType({})) -> float:
    """What a node sends for a file in a mode, the mean of all nodes, or `of` some."""
    rows = results.largest("traffic", backend="namespaces", mode=mode, condition="none", **of)
    protocols = ("serf udp", "serf tcp", "sync")
    sent = [sum(int(row[name]) for name in protocols) / max(1, int(row["files"])) for row in rows]
    return statistics.fmean(sent) / 1000 if sent else 0.0


def _cell(point: Point | None) -> str:
    return "" if point is None else str(point)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
