"""`basefs run`: run a filesystem without mounting it."""

from __future__ import annotations

from typing import Any

import click

from basefs.management import launch


@click.command()
@click.argument("name")
@launch.daemon_options
def run(name: str, **options: Any) -> None:
    """Run the filesystem NAME without a mount: it keeps a replica and serves it to others."""
    launch.launch(name, None, **options)
