"""A cell's error is reported once, as IPython stores it, and the result object stays unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuwidget.kernel.cells.cell_errors import listen_for_error


class Result:
    """Stands in for IPython's result of a cell."""

    error_in_exec: BaseException | None = None


class Slotted:
    """A result whose class accepts no further attributes."""

    __slots__ = ("error_in_exec",)


def run_cell_async(info: object, result: Any, code: Callable[[], object]) -> Any:
    """Run ``code`` in place of ``pre_run_cell``, then store errors in the result, as IPython does."""
    code()
    if result is not None:
        result.error_in_exec = None
        result.error_in_exec = ValueError("no")
        result.error_in_exec = ValueError("again")
    return result


def test_the_first_error() -> None:
    """The callback receives the result with the first error, and the result gets its class back."""
    info, errors = object(), list[Any]()

    def listen() -> None:
        listen_for_error(info, lambda result: errors.append((type(result), str(result.error_in_exec))))

    result = run_cell_async(info, Result(), listen)
    assert errors == [(Result, "no")]
    assert (type(result), list(vars(result))) == (Result, ["error_in_exec"])


def test_a_cell_within_a_cell() -> None:
    """If a cell runs another cell, each callback receives only the error of its cell."""
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
    """After stop(), which may be called twice, no error is reported, and the result is unchanged."""
    info, errors = object(), list[Any]()

    def listen() -> None:
        stop = listen_for_error(info, errors.append)
        stop()
        stop()

    result = run_cell_async(info, Result(), listen)
    assert (errors, type(result), list(vars(result))) == ([], Result, ["error_in_exec"])


@pytest.mark.parametrize("result", [None, Slotted()])
def test_where_the_result_is_not_found(result: Any) -> None:
    """If there is no usable result or no cell, no error is reported and no exception is raised."""
    info, errors = object(), list[Any]()
    run_cell_async(info, result, lambda: listen_for_error(info, errors.append)())
    run_cell_async(info, result, lambda: listen_for_error(object(), errors.append)())
    listen_for_error(info, errors.append)()
    assert errors == []
