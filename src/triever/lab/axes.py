"""The axes of a recipe, and what their values are called in labels and statements."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from triever.errors import UsageError
from triever.lab.toml_values import MARK, table, text

Axes: TypeAlias = Mapping[str, Sequence[object]]
"""The values of each axis, by its dotted name."""


def axes_of(tables: object, before: str = "") -> dict[str, list[object]]:
    """The axes of a recipe by their dotted names; `training.steps` and a table `training` with `steps` are the same.

    >>> axes_of({"k1": [0.9, 1.2], "training": {"steps": [10, 20]}})
    {'k1': [0.9, 1.2], 'training.steps': [10, 20]}
    """
    axes: dict[str, list[object]] = {}
    for key, values in table(tables, f"axes{'.' if before else ''}{before}").items():
        name = f"{before}.{key}" if before else key
        if isinstance(values, Mapping):
            axes |= axes_of(values, name)
        elif isinstance(values, list) and values:
            axes[name] = values
        else:
            problem = "has no values" if values == [] else f"= {values!r} should be a list of values"
            raise UsageError(f"the axis {name} {problem}", f"for example: {name} = [1, 2]")
    return axes


def named(axes: Axes) -> dict[str, list[tuple[object, tuple[str, ...]]]]:
    """The values of every axis, each with its names. Labels of cells use the first name.

    A text is its own name unless another axis has the same text; any other value is named with its axis.

    >>> named({"language": ["none"], "bm25.k1": [0.9]})
    {'language': [('none', ('none', 'language=none'))], 'bm25.k1': [(0.9, ('k1=0.9', 'bm25.k1=0.9'))]}
    """
    last = {axis: axis.rpartition(".")[2] for axis in axes}
    ends = Counter(last.values())
    alone = Counter(name for values in axes.values() for name in {_alone(value) for value in values})

    def names(axis: str, value: object) -> tuple[str, ...]:
        short = last[axis] if ends[last[axis]] == 1 else axis
        name, word = _alone(value), _word(value)
        bare = (name,) if name and alone[name] == 1 else ()
        return tuple(dict.fromkeys((*bare, f"{short}={word}", f"{axis}={word}")))

    return {axis: [(value, names(axis, value)) for value in values] for axis, values in axes.items()}


def _alone(value: object) -> str:
    """What a value may be called without its axis; "" for numbers and the like."""
    if isinstance(value, str) or (isinstance(value, Mapping) and ("label" in value or "kind" in value)):
        return _word(value)
    texts = isinstance(value, list) and value and all(map(_alone, value))
    return _word(value) if texts else ""


def _word(value: object) -> str:
    """A value as a label shows it.

    >>> _word(["firstp", "labelled"]), _word({"kind": "semantic", "branch": 10}), _word(True)
    ('firstp+labelled', 'semantic branch=10', 'true')
    """
    if isinstance(value, Mapping):
        if "label" in value:
            return text(value["label"], "label")
        return " ".join(_word(item) if key == "kind" else f"{key}={_word(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "+".join(map(_word, value)) or "none"
    return value.removeprefix(MARK) if isinstance(value, str) else json.dumps(value, default=str)
