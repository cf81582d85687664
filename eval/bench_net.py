"""`make bench-net`: how soon what is written on one node is on all, in how many bytes, beside Serf and the paper.

Real nodes in network namespaces, each with a Serf agent and a mount.  Compare the ratios, not the seconds: all nodes
share the cores of one machine.  Rows are written as they come, a CSV file for each scenario; what is there already is
not measured again without `--again`.
"""

from __future__ import annotations

from eval.benchmark import Benchmark, scenario_parser
from eval.net import changes, closed, copying, healing, hostile, idle, large, newcomer, returning, rotating, several
from eval.net.attacker import KINDS
from eval.net.scenario import Options, Scenario
from tests.support.shaping import Condition

SCENARIOS: dict[str, Scenario] = {
    "changes": changes.SCENARIO,
    "etc": copying.SCENARIO,
    "heal": healing.SCENARIO,
    "away": returning.SCENARIO,
    "newcomer": newcomer.SCENARIO,
    "idle": idle.SCENARIO,
    "large": large.SCENARIO,
    "several": several.SCENARIO,
    "hostile": hostile.SCENARIO,
    "closed": closed.SCENARIO,
    "rotating": rotating.SCENARIO,
}


def main() -> None:
    """Measure what was asked for, print tables."""
    parser = scenario_parser(__doc__, {name: scenario.about for name, scenario in SCENARIOS.items()})
    parser.add_argument("--seed", type=int, default=1, help="of contents and pauses (default: 1)")
    parser.add_argument("--nodes", type=int, action="append", help="default: what the scenario says")
    parser.add_argument("--repeat", type=int, default=3, help="of which the median counts (default: 3)")
    parser.add_argument("--profile", choices=["wan", "lan", "local"], action="append", help="Serf's timing")
    parser.add_argument(
        "--mode", choices=["push", "gossip"], action="append", help="with sessions that stay, or without"
    )
    parser.add_argument("--condition", action="append", type=_condition, help="of the network; default: none")
    parser.add_argument("--blocks", type=int, action="append", help=f"sizes of files, default: {changes.BLOCKS}")
    parser.add_argument("--size", type=int, default=0, help="of the large file, in megabytes")
    parser.add_argument("--entries", type=int, default=0, help="of what a newcomer or a returner fetches")
    parser.add_argument("--seconds", type=float, default=0.0, help="of a cut, or of watching")
    parser.add_argument("--changes", type=int, default=0, help="on each side of a cut")
    parser.add_argument("--attack", choices=KINDS, action="append", metavar="KIND", help="default: all kinds")
    with Benchmark(parser) as benchmark:
        arguments = benchmark.options
        options = Options(
            seed=arguments.seed,
            nodes=arguments.nodes or (),
            repeat=arguments.repeat,
            profiles=arguments.profile or (),
            modes=arguments.mode or (),
            conditions=arguments.condition or (),
            blocks=arguments.blocks or (),
            size=arguments.size,
            entries=arguments.entries,
            seconds=arguments.seconds,
            changes=arguments.changes,
            attacks=arguments.attack or (),
        )
        for name in arguments.scenario or SCENARIOS:
            scenario = SCENARIOS[name]
            print(f"\n{name}: {scenario.about}", flush=True)
            rows = benchmark.rows(f"bench_net_{name}", scenario.keys)
            # What fails does not keep the other scenarios from being measured.
            with benchmark.going_on(name):
                scenario.run(options, rows)


def _condition(text: str) -> str:
    Condition.parse(text)
    return text


if __name__ == "__main__":
    main()
