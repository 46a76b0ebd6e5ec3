"""The sampler of a process: its subscriptions, and the threads that read the source.

Three daemon threads start with the first subscription and end after the last:

- *fast* makes the cheap calls several times a second and passes each sample to the subscribers;
- *slow* makes the calls that take milliseconds, and reads the hardware counters while a subscription wants
  them;
- *watchdog* only sleeps and compares times. A driver call can hang in the kernel, and nothing interrupts it.
  The watchdog then abandons the thread that made the call and starts another, which goes on with the other
  GPUs and leaves the hung one alone until the call returns.

No other code calls the driver, and no code waits for these threads without a timeout. Start with
``sampler.py``.
"""

from gpuwidget.sampler.sampler import Sampler, process_sampler
from gpuwidget.sampler.subscriptions import INTERVAL_S, MAX_INTERVAL_S, MIN_INTERVAL_S, Subscription

__all__ = [
    "INTERVAL_S",
    "MAX_INTERVAL_S",
    "MIN_INTERVAL_S",
    "Sampler",
    "Subscription",
    "process_sampler",
]
