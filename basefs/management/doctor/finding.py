"""Findings: what is wrong, and what to type."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.Enum):
    """How bad it is."""

    PROBLEM = "problem"  # something does not work, or will soon not
    NOTE = "note"  # worth knowing; may be as it should be


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was found.

    Attributes:
        severity: how bad it is.
        subject: what it is about: fuse, serf, openssl, port, clock, home, disk, mount, log, keys, peers, handlers.
        what: one sentence.
        remedy: what to do, a command line where there is one.
    """

    severity: Severity
    subject: str
    what: str
    remedy: str


def problem(subject: str, what: str, remedy: str) -> Diagnosis:
    """A finding that must be seen to."""
    return Diagnosis(Severity.PROBLEM, subject, what, remedy)


def note(subject: str, what: str, remedy: str) -> Diagnosis:
    """A finding that may be as it should be."""
    return Diagnosis(Severity.NOTE, subject, what, remedy)
