"""What users see stays the same, unless a change of it is wanted."""

from __future__ import annotations

from pathlib import Path

import helpers_golden


def test_users_see_the_same(tmp_path: Path) -> None:
    """All outputs have the checksums in golden.txt."""
    differences = helpers_golden.differences(helpers_golden.write_outputs(tmp_path / "golden"))
    assert not differences, "\n".join(
        (
            "Outputs differ. See how with `python -m tools.golden DIR` on both commits and diff -r.",
            "If the change is wanted: python -m tools.golden DIR --accept.",
            *differences,
        )
    )
