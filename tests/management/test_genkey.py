"""`basefs genkey`."""

from __future__ import annotations

import stat

from basefs.log.keys import SigningKey
from tests.support.commands import Cli


def test_the_default_key(cli: Cli) -> None:
    path = cli.home.path / "key"
    printed = cli("genkey").splitlines()
    key = SigningKey.load(path)
    assert printed == [str(path), f"public key {key.public.hex()}", f"fingerprint {key.fingerprint.hex()}"]
    assert (cli.home.path / "key.pub").read_text() == key.public.hex() + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(cli.home.path.stat().st_mode) == 0o700


def test_a_key_elsewhere_makes_its_directory(cli: Cli) -> None:
    path = cli.base / "new" / "directory" / "mine"
    cli("genkey", path)
    assert SigningKey.load(path).public.hex() == (cli.base / "new" / "directory" / "mine.pub").read_text().strip()
    assert not cli.home.default_key.exists()


def test_an_existing_key_is_replaced_only_on_request(cli: Cli) -> None:
    cli("genkey")
    before = cli.home.default_key.read_bytes()
    assert "exists already: -f" in cli.fails("genkey", code=2)
    assert cli.home.default_key.read_bytes() == before
    cli("genkey", "-f")
    assert cli.home.default_key.read_bytes() != before


def test_a_place_that_cannot_be_written(cli: Cli) -> None:
    (cli.base / "file").touch()
    assert "cannot write the key" in cli.fails("genkey", cli.base / "file" / "key", code=2)
