"""The image of containers: by the Dockerfile where a registry is reachable, else from Debian's packages."""

from __future__ import annotations

import platform
import subprocess
import tempfile
from pathlib import Path

import docker
from docker.errors import APIError, BuildError, ImageNotFound

NAME = "basefs-eval"
_CONTEXT = Path(__file__).parent
#: The same packages as in the Dockerfile.
_PACKAGES = ("python3", "serf", "fuse3", "iproute2", "iptables", "ca-certificates")


def ensure_image(client: docker.DockerClient) -> str:
    """Make the image unless it is there; returns its name.  Raises OSError."""
    try:
        client.images.get(NAME)
    except ImageNotFound:
        print("making the image of a node, some minutes", flush=True)
        try:
            client.images.build(path=str(_CONTEXT), tag=NAME)
        except (APIError, BuildError) as error:
            print(f"no image from a registry ({error}); from Debian's packages instead", flush=True)
            _import(client)
    return NAME


def _import(client: docker.DockerClient) -> None:
    """The machine's own release, so that what is mounted from it finds its libraries."""
    release = platform.freedesktop_os_release()
    components = "main,universe" if release["ID"] == "ubuntu" else "main"
    with tempfile.TemporaryDirectory(prefix="basefs-image-") as text:
        root, archive = Path(text, "root"), Path(text, "root.tar")
        options = ("--variant=minbase", f"--components={components}", f"--include={','.join(_PACKAGES)}")
        _run("debootstrap", *options, release["VERSION_CODENAME"], str(root))
        _run("tar", "-C", str(root), "-cf", str(archive), ".")
        client.api.import_image_from_file(str(archive), repository=NAME, tag="latest")


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{command[0]}: {done.stdout.strip()[-500:]}")
