"""Hide the processes of other users, as the trait ``GpuWidget.hide_other_users`` requests.

A process of an unknown user counts as another user's. The only trace of other users' processes that the
server then sends is the sum of their memory on each GPU.
"""

from __future__ import annotations

from dataclasses import replace

from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Sample
from gpuwidget.system.memory_owners import is_own_user


def without_other_users(sample: Sample) -> Sample:
    """Return ``sample`` with only the processes of the server's user.

    The processes of a recording ran on an unknown machine, so none of them remains.
    """
    return replace(
        sample,
        readings=tuple(
            _without_other_users(reading, local=sample.origin.local_processes) for reading in sample.readings
        ),
    )


def _without_other_users(reading: Reading, *, local: bool) -> Reading:
    if not reading.processes:
        return reading
    own = tuple(process for process in reading.processes if local and is_own_user(process.user))
    return replace(reading, processes=own)
