"""What a run cost, from its file: minutes to fit, bytes of a document; what shows that other work ran beside it.

Also which step of its training a run kept. Files of earlier versions may lack any of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from triever.lab.run_results import Beside, RunResult, Spent
from triever.lab.toml_values import part_name
from triever.memory_parts import PARTS

OTHERS_MB = 2048
"""More memory of a GPU than one process takes besides its tensors: if others hold more, there are others."""
NOT_OF_AN_INDEX = ("weights", "rows by id", "spans")
"""What a search reads that is no part of what it looks into: the models, and where documents stand."""


def fit_seconds(result: RunResult) -> float | None:
    """How long the system and all its parts took to be trained and to read the documents."""
    times = [each["fit_seconds"] for each in (result, *_spent(result.get("parts", {}))) if "fit_seconds" in each]
    return sum(times) if times else None


def _spent(parts: Mapping[str, Spent]) -> Iterator[Spent]:
    """The parts, and the parts of these; one that two others share counts once."""
    seen: set[str] = set()
    waiting = list(parts.items())
    while waiting:
        name, part = waiting.pop()
        if name not in seen:
            seen.add(name)
            yield part
            waiting += part.get("parts", {}).items()


def bytes_per_document(result: RunResult) -> float | None:
    """What a search looks into besides the models' weights, divided by the documents."""
    memory, documents = result.get("memory"), result.get("documents")
    if not memory or not documents:
        return None
    return sum(size for part, size in memory.items() if _is_looked_into(part.rpartition(": ")[2])) / documents


def _is_looked_into(part: str) -> bool:
    return part in PARTS and PARTS[part].read != "none" and part not in NOT_OF_AN_INDEX


def was_alone(result: RunResult) -> bool | None:
    """Whether nothing shows that other work kept the machine busy; None if the file does not say.

    A run may keep all cores busy itself, so a load up to their number shows nothing: see `highest_load`.
    """
    if "beside" not in result:
        return None
    cores = result["hardware"]["cores"] or 1
    return not any(_is_crowded(beside, cores) for beside in _besides(result))


def highest_load(result: RunResult) -> float | None:
    """The highest load of the machine when times were taken, the run itself in it; None if the file does not say."""
    loads = [beside["load"] for beside in _besides(result) if "load" in beside]
    return max(loads) if "load" in result.get("beside", {}) else None


def _besides(result: RunResult) -> list[Beside]:
    """What else the machine was doing at the end of a run, and when its parts were made."""
    parts = [part["beside"] for part in _spent(result.get("parts", {})) if "beside" in part]
    return [result.get("beside", Beside()), *parts]


def _is_crowded(beside: Beside, cores: int) -> bool:
    return beside.get("load", 0.0) > cores + 1 or beside.get("gpu_mb", 0) > OTHERS_MB


def is_as_it_came(result: RunResult) -> bool:
    """Whether a training was undone: held-out queries liked the model best before its first step."""
    made_from = result.get("made_from", {})
    kept_best = _training(result.get("system", {})).get("keep", "best") == "best"
    return kept_best and made_from.get("best step") == 0 and bool(made_from.get("trained steps"))


def _training(system: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of a system's training, or of that of the part that it is."""
    name = part_name(system.get("kind"))
    whole = system.get("parts", {}).get(name, {}) if name else system
    return whole.get("options", {}).get("training") or {}
