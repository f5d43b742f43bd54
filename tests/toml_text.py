"""Plain values as TOML, for tests that write recipes."""

from __future__ import annotations

import json
from collections.abc import Mapping


def to_toml(values: Mapping[str, object], table: str = "") -> str:
    """A table's own keys, then a table for each mapping in it."""
    inner = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    lines = [
        f"{key} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f")  # which TOML does not allow
        for key, value in values.items()
        if key not in inner
    ]
    return "\n".join([*lines, *(f"[{table}{key}]\n{to_toml(value, f'{table}{key}.')}" for key, value in inner.items())])
