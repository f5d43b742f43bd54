"""The version of this Triever."""

from importlib.metadata import version

__version__ = version("triever")
