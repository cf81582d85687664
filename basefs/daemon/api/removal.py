"""Deleting a filesystem from this machine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from basefs.daemon.api.inspection import count_unpublished, has_peers, unpublished_text
from basefs.daemon.api.messages import GetSummary, GrantedKey, ListKeys, Request
from basefs.daemon.api.runfile import RunFile
from basefs.daemon.config import Home
from basefs.daemon.handover import HandOver
from basefs.daemon.keyfiles import own_key_files, root_key_files
from basefs.daemon.lock import exclusive, is_held, only_agent
from basefs.daemon.mounts import is_own, mounts
from basefs.durable import sync_directory
from basefs.errors import AlreadyRunning, BaseFSError
from basefs.gossip.account import Account


def losses(home: Home, name: str, ask: Callable[[Request[Any]], Any]) -> list[str]:
    """What is lost with a filesystem of this machine, a line each; `ask` gets answers of its log.

    Raises `NotFound`, and `AlreadyRunning` where it runs or is mounted.
    """
    directory = home.existing(name)
    if is_held(directory) or any(mount.name == name and is_own(home, mount) for mount in mounts()):
        raise AlreadyRunning(f"{name} is running: 'basefs unmount {name}' first")
    found = []
    try:
        if unpublished := count_unpublished(home, name):
            found.append(f"{unpublished_text(unpublished, name)}: mount it once more to publish them")
        summary = ask(GetSummary())
        granted = [one for one in ask(ListKeys()) if one.path == "/"]
    except BaseFSError as error:
        return [*found, f"the log of {name} cannot be read: {error}"]
    if not has_peers(home, name):
        found.append(f"no other machine is known that has {name}: its {summary.entries} entries may be nowhere else")
    elif warning := HandOver.warning(directory, name, summary.root_hash):
        found.append(warning)
    if files := _sole_keys(home, name, granted):
        listed = " and ".join(sorted(files))
        found.append(f"nobody else may write everywhere in {name}: keep {listed}, which cannot be replaced")
    return found


def _sole_keys(home: Home, name: str, granted: Sequence[GrantedKey]) -> list[str]:
    """The files of all these keys, if all of them are on this machine; none otherwise."""
    here = {key.fingerprint: key.file for key in (*own_key_files(home), *root_key_files(home, name))}
    files = [here[one.fingerprint] for one in granted if one.fingerprint in here]
    return files if len(files) == len(granted) else []


def remove_filesystem(home: Home, name: str) -> None:
    """Delete it, and what its daemon left.  Raises `NotFound`, `AlreadyRunning`, OSError."""
    directory = home.existing(name)
    account = Account.find(directory)
    with exclusive(directory, name), only_agent(directory, name):
        # A name of its own first: what is half deleted is no filesystem any more.
        aside = Path(tempfile.mkdtemp(prefix=".removed-", dir=directory.parent))
        directory.rename(aside / name)
        sync_directory(directory.parent)
    shutil.rmtree(aside)
    if account is not None:
        account.remove()
    RunFile(home, name).remove()
    home.log_path(name).unlink(missing_ok=True)
