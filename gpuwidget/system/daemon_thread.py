"""Run a blocking function in a thread that does not delay the end of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

_Result = TypeVar("_Result")


async def run_in_daemon_thread(function: Callable[[], _Result], name: str) -> _Result:
    """Run the function in a thread without blocking the event loop, and return its result or raise its error.

    The thread is a daemon, so that a run in progress does not delay the end of the process, as a thread of
    ``asyncio.to_thread`` does.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def set_result(result: _Result) -> None:
        if not future.done():
            future.set_result(result)

    def set_error(error: Exception) -> None:
        if not future.done():
            future.set_exception(error)

    def run() -> None:
        try:
            report: Callable[[], None] = partial(set_result, function())
        except Exception as error:
            report = partial(set_error, error)
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(report)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future
