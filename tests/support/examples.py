"""How many examples random tests play: parts of what the profile says, so that HYPOTHESIS_PROFILE=slow prolongs all.

The profiles are in `tests/conftest.py`.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def part(divisor: int, **more: Any) -> settings:
    """Settings with that part of the profile's examples, for a test of which one costs much."""
    return settings(max_examples=max(1, settings().max_examples // divisor), **more)


#: For laws that follow from others.
rarely = part(6)
