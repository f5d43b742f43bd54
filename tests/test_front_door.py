"""What `import triever` gives a person, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import triever


def test_all_is_sorted_and_complete() -> None:
    assert triever.__all__ == sorted(triever.__all__, key=str.casefold)
    public = {
        name for name, value in vars(triever).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public - set(triever.__all__) == set(), "leaks out of the front door"


def test_everything_behind_the_door_exists_and_is_documented() -> None:
    for name in triever.__all__:
        if not name.startswith("__"):
            assert getattr(triever, name).__doc__, f"{name} has no docstring"


def test_the_door_opens_without_heavy_parts() -> None:
    """A person who only reads files should not wait for what only training needs."""
    heavy = {"torch", "transformers", "matplotlib", "faiss", "rich", "typer"}
    code = f"import sys, triever; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
