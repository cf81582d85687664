"""`basefs run`: run a filesystem without mounting it."""

from __future__ import annotations

from typing import Any

import click

from basefs.management import launch
from basefs.management.output import examples


@click.command(
    epilog=examples("basefs run etc", "basefs run etc -b 10.0.0.2 --metrics 127.0.0.1:9464", "basefs run -f etc")
)
@click.argument("name")
@launch.daemon_options
def run(name: str, **options: Any) -> None:
    """Run the filesystem NAME without a mount: it keeps a replica and serves it to others."""
    launch.launch(name, None, **options)
