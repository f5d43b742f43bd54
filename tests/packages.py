"""Packages for tests, written to a folder as pip would leave them: `importlib.metadata` finds their entry points.

Nothing is installed: the folder stands on `sys.path`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from triever import plugins


def write_package(
    folder: Path, name: str, modules: Mapping[str, str], entry_points: Mapping[str, Mapping[str, str]]
) -> None:
    """A package of this name: modules by their paths, and entry points by group and name."""
    for path, source in modules.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
    about = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, names in entry_points.items():
        lines += [f"[{group}]", *(f"{entry} = {value}" for entry, value in names.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")


@contextmanager
def on_path(folder: Path, names: Iterable[str]) -> Iterator[None]:
    """The folder's packages can be imported inside the block; afterwards these modules are forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        plugins.installed.cache_clear()
        try:
            yield
        finally:
            for module in [module for module in sys.modules if module.partition(".")[0] in names]:
                del sys.modules[module]
    plugins.installed.cache_clear()
