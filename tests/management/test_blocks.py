"""`basefs blocks`: contents on their way."""

from __future__ import annotations

import json

from basefs.daemon.keyfiles import default_keys
from basefs.log.entries import Action
from basefs.management.output import size
from tests.support.commands import Cli
from tests.support.helpers import copy_replica, noise


def test_of_a_complete_filesystem(conf: Cli) -> None:
    assert conf.empty("blocks", "conf") == "all contents of the log are complete: 0 blocks\n"
    assert json.loads(conf("blocks", "conf", "--json"))["contents"] == []


def test_of_what_is_not_there(conf: Cli) -> None:
    assert "there is no filesystem other" in conf.fails("blocks", "other")


def test_of_a_content_that_has_come_in_part(conf: Cli) -> None:
    # Written on another node: its manifest has arrived, and all parts but the last.
    with conf.replica("conf") as here:
        other = copy_replica(here, conf.base / "other", default_keys(conf.home))
        applied = other.commit(lambda author: author.write((b"partly",), noise(1, 2000)))
        other.close()
        here.apply(applied.entries, applied.blocks[:-1])
    assert applied.entries[0].action is Action.WRITE
    (row,) = json.loads(conf("blocks", "conf", "--json"))["contents"]
    assert row["path"] == "/partly" and row["progress"] == "receiving"
    parts = applied.blocks[1:-1]
    assert row["blocks"] == len(parts) and row["size"] == 2000
    assert row["bytes"] == sum(len(block.data) for block in parts) < 2000
    assert row["entry"] == applied.entries[0].hash.hex()
    printed = conf("blocks", "conf").rstrip("\n").split("\t")
    assert printed[:5] == ["/partly", "receiving", str(row["blocks"]), size(row["bytes"]), "2.0 kB"]
    assert printed[5].endswith(" ago") and printed[6] == row["entry"][:12]
