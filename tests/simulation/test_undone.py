"""Each mend that can be undone is still in the code, so that a hunt for a seed undoes something."""

from __future__ import annotations

import pytest

from tests.simulation.undone import MENDS, Mend
from tests.support.project import ROOT


@pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.name)
def test_a_mend_is_one_place_of_the_code(mend: Mend) -> None:
    text = (ROOT / "basefs" / mend.file).read_text(encoding="utf-8")
    assert text.count(mend.now) == 1
    # Without it the module says something else, and can be imported.
    undone = text.replace(mend.now, mend.before)
    assert undone != text
    compile(undone, mend.file, "exec")


@pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.name)
def test_some_seed_has_what_a_mend_needs(mend: Mend) -> None:
    assert any(map(mend.fits, range(200)))


def test_each_mend_has_a_name_of_its_own() -> None:
    assert len({mend.name for mend in MENDS}) == len(MENDS)
