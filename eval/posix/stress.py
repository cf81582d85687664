"""stress-ng's filesystem stressors, each for a few seconds with its own checks on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eval.posix.outcome import Outcome, Status, one_line, run

#: Those of its class `filesystem` that work on files in a directory, and some of others that do.  Left out: what needs
#: a device of its own (loop, bind mounts, binderfs), or no directory (eventfd, procfs, ioprio, dup).
STRESSORS = [
    "access",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dirmany",
    "dnotify",
    "fallocate",
    "fcntl",
    "fiemap",
    "file-ioctl",
    "filename",
    "flock",
    "fpunch",
    "fsize",
    "fstat",
    "getdent",
    "handle",
    "hdd",
    "inode-flags",
    "inotify",
    "io",
    "iomix",
    "lease",
    "link",
    "locka",
    "lockf",
    "lockofd",
    "mknod",
    "mmap",
    "open",
    "readahead",
    "rename",
    "seek",
    "sendfile",
    "symlink",
    "sync-file",
    "touch",
    "utime",
    "verity",
    "xattr",
]
#: Those that the project's own tests run: quick, and each about something else.
QUICK = ("access", "chmod", "dentry", "fstat", "rename", "symlink", "utime")
#: How long each runs.
SECONDS = 3
#: Bytes are kept small: it is no place for large files, and every close stores what was written.
_SIZES = {
    "copy-file": ["--copy-file-bytes", "8m"],
    "fallocate": ["--fallocate-bytes", "8m"],
    "fiemap": ["--fiemap-bytes", "8m"],
    "hdd": ["--hdd-bytes", "8m"],
    "iomix": ["--iomix-bytes", "8m"],
    "mmap": ["--mmap-bytes", "8m", "--mmap-file"],
    "readahead": ["--readahead-bytes", "8m"],
    "seek": ["--seek-size", "8m"],
    "sendfile": ["--sendfile-size", "1m"],
    "sync-file": ["--sync-file-bytes", "8m"],
}
#: Exit codes of stress-ng(1) that say "not here": no resource, not implemented.
_SKIPPED = (3, 4)


def stress(place: Path, scratch: Path, names: Sequence[str] = STRESSORS, seconds: int = SECONDS) -> list[Outcome]:
    """One outcome a stressor."""
    return [_one(place, name, seconds) for name in names]


def _one(place: Path, name: str, seconds: int) -> Outcome:
    command = ["stress-ng", f"--{name}", "1", "--timeout", f"{seconds}s", "--temp-path", str(place), "--verify"]
    # What was begun when the time is over is taken away file by file, and that may take longer than the stress itself.
    done = run([*command, *_SIZES.get(name, [])], place, timeout=120 + 10 * seconds)
    complaints = [line for line in done.stdout.splitlines() if "fail:" in line or "error" in line or "skipp" in line]
    detail = one_line("; ".join(complaints[:2]) or done.stdout[-200:])
    if done.returncode == 0 and "skipped" not in done.stdout:
        return Outcome(name, Status.PASSED)
    return Outcome(name, Status.SKIPPED if done.returncode in (0, *_SKIPPED) else Status.FAILED, detail)
