"""`basefs check`."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from basefs.replica.replica import LOG_FILE
from tests.support.commands import Cli
from tests.support.helpers import noise, path
from tests.support.mounts import wait_until
from tests.support.node import Node


@pytest.fixture
def log(conf: Cli) -> Path:
    with conf.replica("conf") as replica:
        replica.commit(lambda author: author.make_directory(path("/d")))
        replica.commit(lambda author: author.write(path("/d/f"), noise(1, 1000)))
    return conf.home.existing("conf") / LOG_FILE


def damage(log: Path) -> None:
    """Break the last block."""
    with closing(sqlite3.connect(log)) as db:
        (sql,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'blocks_no_update'").fetchone()
        db.execute("DROP TRIGGER blocks_no_update")
        db.execute("UPDATE blocks SET data = zeroblob(60) WHERE seq = (SELECT max(seq) FROM blocks)")
        db.execute(sql)
        db.commit()


def run(cli: Cli, *arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    return cli.run("check", "conf", *arguments)


def test_a_whole_log(conf: Cli, log: Path) -> None:
    assert conf.empty("check", "conf") == "conf is intact\n"
    assert json.loads(conf("check", "conf", "--json")) == {"findings": [], "repaired": None}
    assert conf.empty("check", "conf", "--repair") == "conf is intact\n"


def test_damage_is_listed_and_repaired(conf: Cli, log: Path) -> None:
    damage(log)
    code, out, err = run(conf)
    rows = [line.split("\t") for line in out.splitlines()]
    assert (code, err.count("\n")) == (1, 1)
    assert "basefs check conf --repair" in err
    assert ["blocks", "it does not match its hash", "from a peer"] in [[row[0], *row[2:]] for row in rows]
    code, out, err = run(conf, "--json")
    assert (code, err) == (1, "")
    assert len(json.loads(out)["findings"]) == len(rows)
    code, out, err = run(conf, "--repair", "--json")
    told = json.loads(out)
    assert (code, len(told["findings"])) == (0, len(rows))
    assert Path(told["repaired"]).exists()
    assert conf.empty("check", "conf") == "conf is intact\n"


def test_errors(conf: Cli, log: Path) -> None:
    assert "there is no filesystem other" in conf.fails("check", "other")
    log.write_bytes(b"rubbish" * 1000)
    code, out, err = run(conf)
    assert (code, out.count("\n"), err.count("\n")) == (1, 1, 1)
    assert "basefs get" in conf.fails("check", "conf", "--repair")
    assert "Traceback" not in conf.fails("show", "conf")


def test_while_it_runs(node: Node, conf: Cli, log: Path) -> None:
    node.basefs("run", "conf", "-s")
    assert "conf is intact" in node.spawn("check", "conf").stderr
    assert "conf is running already" in conf.fails("check", "conf", "--repair")
    damage(log)
    code, out, _ = run(conf)
    assert (code, "blocks" in out) == (1, True)
    node.basefs("unmount", "conf")
    wait_until(lambda: "running" not in conf("list"), "the end of the daemon")
    assert run(conf, "--repair")[0] == 0
    node.basefs("run", "conf", "-s")
    assert "conf is intact" in node.spawn("check", "conf").stderr
