"""What is said where the packages of the server are not installed."""

from __future__ import annotations

from triever.errors import MissingExtra

INSTALL = "pip install 'triever[serve]'"
"""What brings all that the server needs."""


def missing(error: ModuleNotFoundError) -> Exception:
    """What to say about a module that is missing: how to install it, if it is not one of ours."""
    return error if (error.name or "").startswith("triever") else MissingExtra("the server", INSTALL)
