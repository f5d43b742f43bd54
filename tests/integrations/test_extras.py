"""Adapters are extras: Triever does without their frameworks, and says what to install where one is missing."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conftest import FRAMEWORKS
from triever import MissingExtra

HELPERS = {"__init__", "extra", "sources"}


def test_every_adapter_has_its_extra_and_its_package(root: Path) -> None:
    adapters = {path.stem for path in (root / "src/triever/integrations").glob("*.py")} - HELPERS
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert adapters == set(FRAMEWORKS)
    assert {adapter.replace("_", "-") for adapter in adapters} <= set(extras)


def test_a_missing_framework_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    for adapter, package in FRAMEWORKS.items():
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
                patch.delitem(sys.modules, name)
            patch.setitem(sys.modules, package, None)
            patch.delitem(sys.modules, f"triever.integrations.{adapter}", raising=False)
            extra = adapter.replace("_", "-")
            with pytest.raises(MissingExtra, match=rf"run: pip install 'triever\[{extra}\]'"):
                importlib.import_module(f"triever.integrations.{adapter}")


@pytest.mark.long
def test_triever_imports_no_framework() -> None:
    code = (
        "import sys, triever, triever.cli, triever.integrations; print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {*done.stdout.split()} & {*FRAMEWORKS.values()}
