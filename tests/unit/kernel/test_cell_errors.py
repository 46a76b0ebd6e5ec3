"""A cell's error is told of as IPython notes it, once, and the result is as IPython made it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuwidget.kernel.cells.cell_errors import listen_for_error


class Result:
    """As IPython's: the error is noted in it."""

    error_in_exec: BaseException | None = None


class Slotted:
    """Has no room for anything else."""

    __slots__ = ("error_in_exec",)


def run_cell_async(info: object, result: Any, code: Callable[[], object]) -> Any:
    """Runs ``code`` as IPython does, after its ``pre_run_cell``."""
    code()
    if result is not None:
        result.error_in_exec = None
        result.error_in_exec = ValueError("no")
        result.error_in_exec = ValueError("again")
    return result


def test_the_first_error_is_told() -> None:
    """With the result, which has the error by then and is what it was."""
    info, heard = object(), list[Any]()

    def listen() -> None:
        listen_for_error(info, lambda result: heard.append((type(result), str(result.error_in_exec))))

    result = run_cell_async(info, Result(), listen)
    assert heard == [(Result, "no")]
    assert (type(result), list(vars(result))) == (Result, ["error_in_exec"])


def test_a_cell_within_a_cell() -> None:
    """Each cell's error is its own."""
    outer, inner, heard = object(), object(), list[str]()

    def listen() -> None:
        listen_for_error(outer, lambda result: heard.append("outer"))
        run_cell_async(inner, Result(), lambda: listen_for_error(inner, lambda result: heard.append("inner")))
        assert heard == ["inner"]

    run_cell_async(outer, Result(), listen)
    assert heard == ["inner", "outer"]


def test_taken_back() -> None:
    """Nobody is told of an error after that, and nothing is left."""
    info, heard = object(), list[Any]()

    def listen() -> None:
        stop = listen_for_error(info, heard.append)
        stop()
        stop()

    result = run_cell_async(info, Result(), listen)
    assert (heard, type(result), list(vars(result))) == ([], Result, ["error_in_exec"])


@pytest.mark.parametrize("result", [None, Slotted()])
def test_where_it_cannot_be_told(result: Any) -> None:
    """The cell goes on as ever, with whatever notes its end, and also outside of a cell."""
    info, heard = object(), list[Any]()
    run_cell_async(info, result, lambda: listen_for_error(info, heard.append)())
    run_cell_async(info, result, lambda: listen_for_error(object(), heard.append)())
    listen_for_error(info, heard.append)()
    assert heard == []
