"""Tests of reporting a cell's error once, when IPython stores it, without changing the result object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuwidget.kernel.cells.cell_errors import listen_for_error


class Result:
    """A fake of the object in which IPython stores the result of a cell."""

    error_in_exec: BaseException | None = None


class Slotted:
    """A fake result whose class accepts no further attributes."""

    __slots__ = ("error_in_exec",)


def run_cell_async(info: object, result: Any, code: Callable[[], object]) -> Any:
    """Call ``code`` at the time at which IPython triggers ``pre_run_cell``, then store errors in ``result``
    as IPython does."""
    code()
    if result is not None:
        result.error_in_exec = None
        result.error_in_exec = ValueError("no")
        result.error_in_exec = ValueError("again")
    return result


def test_the_first_error() -> None:
    """The callback is called once, for the first error that IPython stores in the result.

    The original class of the result is restored before the callback is called.
    """
    info, errors = object(), list[Any]()

    def listen() -> None:
        listen_for_error(info, lambda result: errors.append((type(result), str(result.error_in_exec))))

    result = run_cell_async(info, Result(), listen)
    assert errors == [(Result, "no")]
    assert (type(result), list(vars(result))) == (Result, ["error_in_exec"])


def test_a_cell_within_a_cell() -> None:
    """If a cell runs another cell, the callback of each cell receives only the error of its own cell."""
    outer, inner, errors = object(), object(), list[str]()

    def listen() -> None:
        listen_for_error(outer, lambda result: errors.append("outer"))
        run_cell_async(
            inner, Result(), lambda: listen_for_error(inner, lambda result: errors.append("inner"))
        )
        assert errors == ["inner"]

    run_cell_async(outer, Result(), listen)
    assert errors == ["inner", "outer"]


def test_stopped() -> None:
    """After stop() is called, errors are not reported, and the result is unchanged. stop() may be called
    twice."""
    info, errors = object(), list[Any]()

    def listen() -> None:
        stop = listen_for_error(info, errors.append)
        stop()
        stop()

    result = run_cell_async(info, Result(), listen)
    assert (errors, type(result), list(vars(result))) == ([], Result, ["error_in_exec"])


@pytest.mark.parametrize("result", [None, Slotted()])
def test_a_result_that_cannot_be_observed(result: Any) -> None:
    """If no cell runs, or the cell's result is missing or cannot be observed, no error is reported.

    No exception is raised either.
    """
    info, errors = object(), list[Any]()
    run_cell_async(info, result, lambda: listen_for_error(info, errors.append)())
    run_cell_async(info, result, lambda: listen_for_error(object(), errors.append)())
    listen_for_error(info, errors.append)()
    assert errors == []
