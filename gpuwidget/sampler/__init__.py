"""The sampling of a process: who wants samples, and the threads that fetch them.

Three daemon threads, started by the first subscriber and ended with the last:

- *fast* makes the cheap calls, several times a second, and hands each sample to the subscribers;
- *slow* makes the calls that take milliseconds, and the hardware counters' ones while somebody wants them;
- *watchdog* only sleeps and looks at the clock. A call into the driver can hang in the kernel, and
  nothing interrupts it: the watchdog then gives up the thread that made it and starts another, which goes
  on with the other GPUs and leaves that one alone until the call returns after all.

Nobody else calls the driver, and nobody waits for these threads without a bound.
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
