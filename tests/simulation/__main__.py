"""`make simulate`: plays seeds, with a line for each that fails and the command that plays it again."""

from __future__ import annotations

import sys
from functools import partial
from multiprocessing import Pool

import click

from tests.simulation.run import Outcome, play


@click.command()
@click.option("--seeds", default=100, show_default=True, help="Seeds to play.")
@click.option("--from", "first", default=0, show_default=True, help="The first of them.")
@click.option("--jobs", default=1, show_default=True, help="Seeds at once.")
@click.option("--plain", is_flag=True, help="Without mounts, closed filesystems and other scenes.")
@click.option("--trace", is_flag=True, help="Print a line for each event.")
def main(seeds: int, first: int, jobs: int, plain: bool, trace: bool) -> None:
    """Play whole clusters in virtual time (docs/simulation.md)."""
    failed, spent, seconds = 0, 0.0, 0.0
    with Pool(jobs) as pool:
        for outcome in pool.imap(partial(play, plain=plain), range(first, first + seeds)):
            if trace:
                click.echo("\n".join(outcome.trace))
            if outcome.failure:
                failed += 1
                _report(outcome, plain)
            spent += outcome.spent
            seconds += outcome.seconds
    click.echo(
        f"{seeds - failed} of {seeds} seeds passed, {seconds:.0f} s of virtual time, "
        f"{spent / seeds:.2f} s of the processor each"
    )
    sys.exit(failed > 0)


def _report(outcome: Outcome, plain: bool) -> None:
    seed = outcome.plan.seed
    click.echo(f"seed {seed}: {outcome.failure}")
    click.echo(
        f"    {outcome.plan}; again: make simulate SEEDS=1 FROM={seed} {'PLAIN=--plain ' if plain else ''}TRACE=--trace"
    )


if __name__ == "__main__":
    main()
