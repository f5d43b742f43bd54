"""Packages that read some kinds of files and are not part of a plain installation; the extra `files` brings them."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from triever.errors import MissingExtra

INSTALL = "pip install 'triever[files]'"
"""The command that installs all of these packages."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package, the kind of files that it reads, and their endings."""

    name: str
    kind: str
    endings: tuple[str, ...]

    def is_installed(self) -> bool:
        """Whether Python finds the package."""
        return importlib.util.find_spec(self.name) is not None

    def reads(self, path: str | Path) -> bool:
        """Whether a file has one of the endings."""
        return str(path).lower().endswith(self.endings)

    def missing(self) -> MissingExtra:
        """The error for a file that cannot be read without the package."""
        return MissingExtra(f"reading a {self.kind}", INSTALL)


PYPDF = Package("pypdf", "PDF", (".pdf",))
WARCIO = Package("warcio", "web archive", (".warc", ".warc.gz"))
PACKAGES = (PYPDF, WARCIO)


def missing_package(path: str | Path) -> Package | None:
    """The package that would read a file, if it is not installed."""
    return next((package for package in PACKAGES if package.reads(path) and not package.is_installed()), None)


@contextmanager
def quiet(name: str) -> Generator[None]:
    """Silence a package that warns about every small flaw of a file which it reads all the same."""
    log = logging.getLogger(name)
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
