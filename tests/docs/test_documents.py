"""Each transcript in a document is replayed on separate machines and must give the same output."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.captures import documents
from eval.transcript import Player, machines, parse
from tests.support.mounts import temporary_directory


@pytest.mark.cluster
@pytest.mark.fuse
@pytest.mark.serf
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("document", documents(), ids=lambda path: path.stem)
def test_the_commands_of_a_document_do_what_it_says(document: Path) -> None:
    with temporary_directory() as directory, machines(directory) as found:
        player = Player(found)
        for block in parse(document.read_text()):
            for step in block.steps:
                player.check(step)
