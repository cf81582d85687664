"""Whether this user can mount with FUSE here."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
import stat
from pathlib import Path

from basefs.management.doctor.finding import Diagnosis, problem

DEVICE = Path("/dev/fuse")
#: The library that the binding loads, see `basefs/fs/fuse/binding.py`.
_LIBRARY = "fuse3"


def examine() -> list[Diagnosis]:
    """Device, library, and the helper that mounts for those who are not root."""
    return [*_device(), *_library(), *_helper()]


def _device() -> list[Diagnosis]:
    try:
        if not stat.S_ISCHR(DEVICE.stat().st_mode):
            return [problem("fuse", f"{DEVICE} is no device", f"rm {DEVICE}; modprobe fuse")]
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        remedy = "modprobe fuse; a container needs the device from its host (docker run --device /dev/fuse)"
        return [problem("fuse", f"there is no {DEVICE}", remedy)]
    except OSError as error:
        remedy = f"chmod 666 {DEVICE}; a container needs permission for the device from its host"
        return [problem("fuse", f"{DEVICE} cannot be opened: {error.strerror}", remedy)]
    return []


def _library() -> list[Diagnosis]:
    remedy = "apt-get install fuse3, or this system's package of libfuse 3"
    path = ctypes.util.find_library(_LIBRARY)
    if path is None:
        return [problem("fuse", "libfuse 3 is not installed", remedy)]
    try:
        ctypes.CDLL(path)
    except OSError as error:
        return [problem("fuse", f"libfuse 3 cannot be loaded: {error}", remedy)]
    return []


def _helper() -> list[Diagnosis]:
    if os.geteuid() == 0 or shutil.which("fusermount3"):
        return []
    what = "fusermount3 is missing, without which only root can mount"
    return [problem("fuse", what, "apt-get install fuse3, or mount as root")]
