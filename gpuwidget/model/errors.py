"""The exceptions of gpuwidget. Their texts tell users what happened, why, and what to do.

::

    GpuWidgetError
    ├── OptionError         an option, a device name or an environment variable can't be used
    ├── MissingPackageError a package that only the requested feature needs is not installed
    ├── ExamplesError       the example notebooks can't be copied
    ├── NotebookError       a file is not a notebook, or a notebook can't be written
    ├── JournalError        the journal of runs can't be written
    ├── DoctorError         the doctor's checks did not finish
    ├── DaskError           the workers of a Dask client can't be measured
    ├── PrometheusError     a Prometheus server can't answer a query
    ├── RecordingError      a file is not a recording, or a recording can't be written
    └── SourceError         a source of readings failed
        ├── GpuLostError    one GPU fell off the bus or needs a reset; the others still work
        │   └── SliceRemovedError   a MIG slice no longer exists
        └── SourceLostError the driver is no longer available; open the source again
"""

from __future__ import annotations

from gpuwidget.model.messages import Message


class GpuWidgetError(Exception):
    """Base class of every error that gpuwidget raises on purpose."""


class OptionError(GpuWidgetError, ValueError):
    """An option, a device name or an environment variable can't be used."""


class MissingPackageError(GpuWidgetError, ImportError):
    """A package that only the requested feature needs is not installed."""


class ExamplesError(GpuWidgetError):
    """The example notebooks can't be copied."""


class NotebookError(GpuWidgetError):
    """A file is not a notebook, or a notebook can't be written."""


class JournalError(GpuWidgetError):
    """The journal of runs can't be written."""


class DoctorError(GpuWidgetError):
    """The doctor's checks did not finish."""


class DaskError(GpuWidgetError):
    """The workers of a Dask client can't be measured."""


class PrometheusError(GpuWidgetError):
    """A Prometheus server can't answer a query. The error's text can be shown to users."""


class RecordingError(GpuWidgetError):
    """A file is not a recording, or a recording can't be written."""


class SourceError(GpuWidgetError):
    """A source of readings failed. The error's text can be shown to users."""


class GpuLostError(SourceError):
    """One GPU fell off the bus or needs a reset. The other GPUs still work."""

    def __init__(self, text: str, reason: Message | None = None) -> None:
        """``reason`` is the reason to give for the GPU's unknown values, if it is known."""
        super().__init__(text)
        self.reason = reason


class SliceRemovedError(GpuLostError):
    """A MIG slice no longer exists, because an administrator removed it. Its GPU still works."""


class SourceLostError(SourceError):
    """The driver is no longer available. The source must be opened again."""


def loggable(error: BaseException, *, hide_text: bool) -> BaseException:
    """Return what a log shows of ``error``: with ``hide_text``, only the name of its type and its traceback.

    The text of an unexpected error, or of its cause, may contain the id, name or arguments of a process.
    """
    return RuntimeError(type(error).__name__).with_traceback(error.__traceback__) if hide_text else error
