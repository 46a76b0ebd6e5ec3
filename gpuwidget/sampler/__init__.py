"""The sampler of a process: its subscriptions, and the threads that read the source.

Three daemon threads start with the first subscription and end some time after the last one has ended:

- *fast* makes the cheap calls several times per second and passes each sample to the subscribers;
- *slow* makes the calls that take milliseconds, and reads the hardware counters while a subscription needs
  them;
- *watchdog* only sleeps and compares times. A driver call can hang in the operating system's kernel and can't
  be interrupted. The watchdog then abandons the thread that made the call and starts a new thread, which
  continues with the other GPUs and does not call the hung GPU until the call has returned.

In this process, gpuwidget calls NVML only on these threads, and no other thread waits for them without a
timeout.
Start with ``sampler.py``.
"""

from gpuwidget.sampler.poll_threads import NO_THREAD
from gpuwidget.sampler.sampler import OPEN_TIMEOUT_S, Sampler, process_sampler
from gpuwidget.sampler.subscriptions import INTERVAL_S, MAX_INTERVAL_S, MIN_INTERVAL_S, Subscription

__all__ = [
    "INTERVAL_S",
    "MAX_INTERVAL_S",
    "MIN_INTERVAL_S",
    "NO_THREAD",
    "OPEN_TIMEOUT_S",
    "Sampler",
    "Subscription",
    "process_sampler",
]
