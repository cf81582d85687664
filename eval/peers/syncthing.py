"""Syncthing: a directory that all nodes share, each connected to all others, with its own defaults otherwise."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.support.node import Node

_PORT = 22000
_FOLDER = "shared"
#: The settings of a folder that is made in its user interface.
_WATCHING = {"type": "sendreceive", "rescanIntervalS": "3600", "fsWatcherEnabled": "true", "fsWatcherDelayS": "10"}
#: Only these nodes are announced or discovered.
_OPTIONS = {
    "globalAnnounceEnabled": "false",
    "localAnnounceEnabled": "false",
    "relaysEnabled": "false",
    "natEnabled": "false",
    "startBrowser": "false",
    "crashReportingEnabled": "false",
    "urAccepted": "-1",
    "autoUpgradeIntervalH": "0",
}


@contextlib.contextmanager
def started(nodes: Sequence[Node], directory: Path) -> Iterator[list[Path]]:
    """Daemons that run until the end; the shared directory of each node."""
    homes = [directory / f"syncthing{index}" for index in range(len(nodes))]
    names = [_generate(home) for home in homes]
    folders = [home / _FOLDER for home in homes]
    with contextlib.ExitStack() as stack:
        for node, home, folder in zip(nodes, homes, folders, strict=True):
            folder.mkdir()
            _configure(home, folder, nodes, names)
            command = [*node.prefix(), "syncthing", "serve", f"--home={home}", "--no-browser", "--no-restart"]
            daemon = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(daemon.wait)
            stack.callback(daemon.terminate)
        yield folders


def _generate(home: Path) -> str:
    """Make a key; returns the name of the device."""
    command = ["syncthing", "generate", f"--home={home}", "--no-default-folder", "--skip-port-probing"]
    subprocess.run(command, capture_output=True, check=True)
    shown = subprocess.run(
        ["syncthing", "serve", f"--home={home}", "--device-id"], capture_output=True, text=True, check=True
    )
    return shown.stdout.split()[-1]


def _configure(home: Path, folder: Path, nodes: Sequence[Node], names: Sequence[str]) -> None:
    path = home / "config.xml"
    tree = ElementTree.parse(path)
    root, address = tree.getroot(), dict(zip(names, nodes, strict=True))
    for old in [*root.findall("device"), *root.findall("folder")]:
        root.remove(old)
    shared = ElementTree.SubElement(root, "folder", {"id": _FOLDER, "path": str(folder), **_WATCHING})
    for name in names:
        ElementTree.SubElement(shared, "device", id=name)
        device = ElementTree.SubElement(root, "device", id=name, name=name[:7], compression="metadata")
        ElementTree.SubElement(device, "address").text = f"tcp://{address[name].address}:{_PORT}"
    gui = root.find("gui")
    if gui is not None:
        gui.set("enabled", "false")
    options = root.find("options")
    if options is None:
        options = ElementTree.SubElement(root, "options")
    own = nodes[int(home.name.removeprefix("syncthing"))]
    for name, value in {**_OPTIONS, "listenAddress": f"tcp://{own.address}:{_PORT}"}.items():
        for old in options.findall(name):
            options.remove(old)
        ElementTree.SubElement(options, name).text = value
    tree.write(path)
