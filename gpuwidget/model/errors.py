"""What can go wrong, each with a sentence that says what happened, why, and what to do.

::

    GpuWidgetError
    ├── OptionError         an option, a device name or an environment variable that can't be used
    ├── MissingPackageError a package that only this needs is not installed
    ├── ExamplesError       the notebooks that come along can't be copied out
    ├── DoctorError         an examination that came to no end
    ├── RecordingError      a file that is no recording, or can't be written
    └── SourceError         a source of readings that can't go on
        ├── GpuLostError    one GPU fell off the bus or needs a reset; the others go on
        └── SourceLostError the driver as a whole went away; open the source again
"""

from __future__ import annotations


class GpuWidgetError(Exception):
    """Base of every error that gpuwidget raises on purpose."""


class OptionError(GpuWidgetError, ValueError):
    """An option, a device name or an environment variable that can't be used."""


class MissingPackageError(GpuWidgetError, ImportError):
    """A package that only what was asked for needs is not installed."""


class ExamplesError(GpuWidgetError):
    """The notebooks that come along can't be copied out."""


class DoctorError(GpuWidgetError):
    """An examination that came to no end."""


class RecordingError(GpuWidgetError):
    """A file that is no recording, or one that can't be written."""


class SourceError(GpuWidgetError):
    """A source of readings that can't go on; its text is fit to show to a user."""


class GpuLostError(SourceError):
    """One GPU fell off the bus or needs a reset; the other GPUs go on."""


class SourceLostError(SourceError):
    """The driver as a whole went away; the source must be opened again."""
