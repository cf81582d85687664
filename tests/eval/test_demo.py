"""What the demonstration puts where other users of the machine can read it."""

from __future__ import annotations

import os
from pathlib import Path

from eval.demo import copy_readable


def test_the_demonstration_copies_only_what_everybody_may_read(tmp_path: Path) -> None:
    source = tmp_path / "etc"
    for name, mode in {"hosts": 0o644, "shadow": 0o640, "key": 0o600, "open/motd": 0o444, "closed/motd": 0o644}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
        (source / name).chmod(mode)
    (source / "closed").chmod(0o750)
    (source / "link").symlink_to("shadow")
    os.mkfifo(source / "pipe")
    copy = copy_readable(source, tmp_path / "copy")
    found = {str(path.relative_to(copy)): path.lstat().st_mode & 0o777 for path in copy.rglob("*") if path.is_file()}
    assert found == {"hosts": 0o644, "open/motd": 0o444}
    assert (copy / "link").is_symlink() and not (copy / "closed").exists() and not (copy / "pipe").exists()
