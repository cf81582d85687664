"""Run a program under what a systemd unit says, as far as that needs no systemd.

`python -m tests.deploy.confined UNIT PROGRAM ARGUMENTS...` applies NoNewPrivileges, CapabilityBoundingSet,
SystemCallFilter, SystemCallErrorNumber, MemoryDenyWriteExecute and UMask.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_MDWE = 65
#: `SCMP_ACT_ALLOW` and `SCMP_ACT_ERRNO` of libseccomp's seccomp.h.
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
#: Numbers of linux/capability.h, in order.
_CAPABILITIES = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
]


def settings_of(unit: Path) -> dict[str, list[str]]:
    """The settings of a unit with all their values."""
    settings: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            settings.setdefault(name, []).append(value)
    return settings


def system_calls(names: Iterable[str]) -> set[str]:
    """The system calls of a list that holds names and, with an `@`, systemd's groups of them."""
    found = set()
    for name in names:
        if not name.startswith("@"):
            found.add(name)
            continue
        command = ["systemd-analyze", "syscall-filter", name]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        found |= system_calls(line.strip() for line in listed if line.startswith("    ") and "#" not in line)
    return found


def confine(unit: Path) -> None:
    """Confine this process, and all that it starts, for ever.  Raises OSError."""
    settings = settings_of(unit)
    allowed: set[str] = set()
    for value in settings["SystemCallFilter"]:
        if value.startswith("~"):
            allowed -= system_calls(value[1:].split())
        else:
            allowed |= system_calls(value.split())
    libc = ctypes.CDLL(None, use_errno=True)

    def control(*arguments: int) -> None:
        if libc.prctl(*arguments, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl {arguments}")

    kept = settings["CapabilityBoundingSet"][0].split()
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for number, name in enumerate(_CAPABILITIES[: last + 1]):
        if f"CAP_{name}" not in kept:
            control(_PR_CAPBSET_DROP, number)
    assert settings["NoNewPrivileges"] == ["yes"]
    control(_PR_SET_NO_NEW_PRIVS, 1)
    if settings["MemoryDenyWriteExecute"] == ["yes"]:
        try:
            control(_PR_SET_MDWE, 1)
        except OSError as error:
            # Linux 6.3 brought it; systemd has a filter for older ones.
            if error.errno != errno.EINVAL:
                raise
    os.umask(int(settings["UMask"][0], 8))
    _filter(allowed, getattr(errno, settings["SystemCallErrorNumber"][0]))


def _filter(allowed: set[str], number: int) -> None:
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ERRNO | number)))
    for name in allowed:
        call = library.seccomp_syscall_resolve_name(name.encode())
        # Those of other architectures have negative numbers, or none.
        if call >= 0 and library.seccomp_rule_add(context, ctypes.c_uint32(_ALLOW), call, 0) != 0:
            raise OSError(f"no rule for {name}")
    if library.seccomp_load(context) != 0:
        raise OSError("the filter cannot be loaded")


if __name__ == "__main__":
    confine(Path(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
