"""The version of this Triever."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("triever")
except PackageNotFoundError:  # run from a source folder that was never installed
    __version__ = "0+source"
