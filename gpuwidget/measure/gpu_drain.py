"""How long the GPU went on working after the Python code had ended."""

from __future__ import annotations

import threading

from gpuwidget.model.clock import Clock
from gpuwidget.pytorch import cuda_state


def wait_for_gpu(clock: Clock) -> tuple[float | None, bool]:
    """Wait until this process's work on the GPU is done.

    The seconds that took, None where nobody waited since this process has no context, or where a kernel
    had failed; and whether an interrupt ended the wait (the GPU then works on). The wait itself is on a
    thread of its own, since nothing interrupts a synchronisation. Never raises.
    """
    if not cuda_state.can_synchronize():
        return None, False
    began = clock.monotonic()
    ended: list[float] = []
    done = threading.Event()

    def wait() -> None:
        try:
            cuda_state.synchronize()
            ended.append(clock.monotonic())
        except Exception:
            # What a failed kernel left behind is the user's next call's to raise, as without us.
            pass
        finally:
            done.set()

    threading.Thread(target=wait, name="gpuwidget-tail", daemon=True).start()
    try:
        done.wait()
    except KeyboardInterrupt:
        return None, True
    return (ended[0] - began if ended else None), False
