"""CPython's own tests of files, with their temporary directory on the mount."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

from eval.posix.outcome import Outcome, Status, one_line, run

MODULES = ("test_os", "test_shutil", "test_tempfile", "test_pathlib", "test_mmap")
#: `test_a (test.test_os.FileTests.test_a) ... ok`; before Python 3.11 without the last name in the brackets.
_LINE = re.compile(r"^(?P<name>\w+) \((?P<where>[\w.]+)\)")
_END = re.compile(r"\.\.\. (?P<status>ok|FAIL|ERROR|skipped|expected failure)(?P<why>.*)$")
_STATUS = {
    "ok": Status.PASSED,
    "FAIL": Status.FAILED,
    "ERROR": Status.FAILED,
    "skipped": Status.SKIPPED,
    "expected failure": Status.PASSED,
}
#: The last line of a traceback, after the heading that names the test.
_HEADING = re.compile(r"^(?:FAIL|ERROR): (?P<name>\w+) \((?P<where>[\w.]+)\)", re.MULTILINE)


def python(place: Path, scratch: Path, modules: tuple[str, ...] = MODULES, leave_out: str = "") -> list[Outcome]:
    """The tests of these modules of CPython's `test` package, one process a module; without those of one name."""
    return [outcome for module in modules for outcome in _module(place, scratch, module, leave_out)]


def _module(place: Path, scratch: Path, module: str, leave_out: str) -> list[Outcome]:
    ignore = ["--ignore", leave_out] if leave_out else []
    done = run(
        [sys.executable, "-m", "test", "-v", "--tempdir", place, *ignore, module],
        place,
        timeout=1200,
        TMPDIR=str(place),
        PYTHONDONTWRITEBYTECODE="1",
    )
    (scratch / f"{module}.log").write_text(done.stdout)
    details = _details(done.stdout)
    found: dict[str, Outcome] = {}
    case = None
    for line in done.stdout.splitlines():
        begin, end = _LINE.match(line), _END.search(line)
        if begin is not None:
            case = _case(module, begin["name"], begin["where"])
        if end is not None and case is not None:
            status = _STATUS[end["status"]]
            found[case] = Outcome(
                case, status, details.get(case, "") if status is Status.FAILED else end["why"].strip()
            )
            case = None
    for failed, why in details.items():
        # A subtest's failure stands only below; so does one in a fixture.
        found[failed] = Outcome(failed, Status.FAILED, why)
    if not found or (done.returncode != 0 and not details):
        found[module] = Outcome(module, Status.FAILED, one_line(done.stdout[-300:]))
    return list(found.values())


def _case(module: str, name: str, where: str) -> str:
    cls = where.removesuffix(f".{name}").rpartition(".")[2]
    return f"{module}.{cls}.{name}"


def _details(output: str) -> dict[str, str]:
    """The last line of each traceback, by case."""
    found = {}
    headings = list(_HEADING.finditer(output))
    for heading, following in itertools.zip_longest(headings, headings[1:]):
        text = output[heading.end() : None if following is None else following.start()].split("\n=====")[0]
        text = text.split("\n\nstdout", maxsplit=1)[0].split("\n\n-----", maxsplit=1)[0]
        lines = [line for line in text.splitlines() if line and not line.startswith((" ", "-", "="))]
        error = next((line for line in reversed(lines) if re.match(r"^[\w.]+(?:Error|Exception|Warning)?: ", line)), "")
        found[_case(_module_of(heading["where"]), heading["name"], heading["where"])] = one_line(error or "failed")
    return found


def _module_of(where: str) -> str:
    return next((part for part in where.split(".") if part in MODULES), where.split(".")[0])
