"""`basefs genkey`."""

from __future__ import annotations

import stat

from basefs.log.keys import SigningKey
from tests.support.commands import Cli
from tests.support.node import Node


def test_the_default_key(cli: Cli) -> None:
    path = cli.home.path / "key"
    printed = cli("genkey").splitlines()
    key = SigningKey.load(path)
    assert printed == [str(path), f"public key {key.public.hex()}", f"fingerprint {key.fingerprint.hex()}"]
    assert (cli.home.path / "key.pub").read_text() == key.public.hex() + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(cli.home.path.stat().st_mode) == 0o700


def test_a_key_elsewhere_makes_no_directory(cli: Cli) -> None:
    path = cli.base / "new" / "mine"
    assert f"cannot write the key {path}: No such file" in cli.fails("genkey", path)
    assert not path.parent.exists()
    path.parent.mkdir()
    cli("genkey", path)
    assert SigningKey.load(path).public.hex() == (cli.base / "new" / "mine.pub").read_text().strip()
    assert not cli.home.default_key.exists()


def test_an_existing_key_is_replaced_only_on_request(cli: Cli) -> None:
    cli("genkey")
    before = cli.home.default_key.read_bytes()
    assert "exists already: -f" in cli.fails("genkey")
    assert cli.home.default_key.read_bytes() == before
    assert cli.run("genkey", "-f")[0] == 0
    assert cli.home.default_key.read_bytes() != before


def test_a_replaced_key_is_kept_and_what_needs_it_is_named(conf: Cli) -> None:
    old = SigningKey.load(conf.home.default_key)
    before = conf.home.default_key.read_bytes()
    code, _, err = conf.run("genkey", "-f")
    kept = conf.home.path / f"key.old-{old.fingerprint.hex()[:12]}"
    assert kept.read_bytes() == before and stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert code == 0 and str(kept) in err and "may write in conf: " in err


def test_a_daemon_that_signs_with_the_old_key_shows(node: Node, conf: Cli) -> None:
    node.basefs("run", "conf", "-s")
    assert "does not use" not in conf("status", "conf") + conf.run("doctor", "conf")[1]
    conf.run("genkey", "-f")
    key = f"the key in {conf.home.default_key}"
    assert f"may write\t/; the daemon does not use {key}" in conf("status", "conf")
    assert f"the daemon of conf does not use {key}" in conf.run("doctor", "conf")[1]


def test_a_file_that_is_no_key_is_kept_as_well(cli: Cli) -> None:
    cli.home.make()
    for content in (b"rubbish \xff", b""):
        cli.home.default_key.write_bytes(content)
        assert "exists already: -f" in cli.fails("genkey")
        code, out, err = cli.run("genkey", "-f")
        (kept,) = (path for path in cli.home.path.glob("key.old-*") if path.read_bytes() == content)
        assert code == 0 and f"kept the former key as {kept}" in err
        assert SigningKey.load(cli.home.default_key).public.hex() in out
    cli.home.default_key.unlink()
    cli.home.default_key.mkdir()
    assert "cannot read the key" in cli.fails("genkey", "-f", code=2)


def test_a_place_that_cannot_be_written(cli: Cli) -> None:
    (cli.base / "file").touch()
    assert "cannot write the key" in cli.fails("genkey", cli.base / "file" / "key")
