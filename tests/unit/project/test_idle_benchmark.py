"""Tests of how the benchmark `idle` computes the errors of a line profile. A wrong value is an error; a
missing value is not."""

from __future__ import annotations

from benchmarks.idle import Errors, profile_errors

TRUTH = {"2": (60.0, 0.0), "3": (39.5, 98.0), "1": (0.5, 0.0)}


def test_the_largest_error_is_returned() -> None:
    """`profile_errors()` compares each line's share and activity with the true values. It returns the largest
    error in share and the largest error in activity over all lines."""
    profile = [
        {"line": 2, "until": None, "share": 58.0, "gpu_busy": 1.5},
        {"line": 3, "until": None, "share": 40.5, "gpu_busy": 94.0},
    ]
    assert profile_errors(profile, TRUTH) == Errors(share=2.0, activity=4.0, unreported=0)


def test_lines_shown_as_one_are_their_sum() -> None:
    """If the profile merges several lines into one row, the row is compared with the sum of the lines' true
    shares and the mean of their true activities. The merged lines count as unreported, because the profile
    has no values for each of them alone."""
    profile = [{"line": 2, "until": 3, "share": 99.0, "gpu_busy": 40.0}]
    found = profile_errors(profile, TRUTH)
    assert round(found.share, 6) == 0.5
    assert round(found.activity, 2) == 1.1
    assert found.unreported == 2
