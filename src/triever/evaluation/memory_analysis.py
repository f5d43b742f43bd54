"""The memory and disk space that saved retrievers take, part by part, and what they would take with more documents.

Every part is counted from the arrays that exist, and computed from settings and numbers alone. The arithmetic is shown
for the present number of documents and for every larger one that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from triever import artifact
from triever.errors import UsageError
from triever.evaluation.finding import Finding, Part
from triever.evaluation.picture import Bars
from triever.evaluation.process_memory import opened
from triever.memory_parts import Product, about, computed, index_size, readable
from triever.retriever import Retriever, load

GROW = (10**7, 10**8, 10**9)
FILES_SHOWN = 8
MORE = 10
"""The growth of a part is computed from its sizes now and with this many times as many documents."""
GB = 10**9


class PartMemory(TypedDict):
    """The bytes of a part: as they are, in mapped files, on a GPU, as computed, and for each further document."""

    bytes: int
    mapped: int
    gpu: int
    computed: int | None
    more_a_document: float


class GrownPart(TypedDict):
    """The computed bytes of a part, and how they were computed."""

    bytes: int
    arithmetic: str


class Grown(TypedDict):
    """The computed memory of a retriever with another number of documents."""

    documents: int
    bytes: int
    parts: dict[str, GrownPart]


class HeldMemory(TypedDict):
    """The memory of a retriever."""

    kind: str
    documents: int
    parts: dict[str, PartMemory]
    bytes: int
    mapped: int
    index_bytes: int
    grown: list[Grown]


class ModelMemory(HeldMemory):
    """The memory of a saved retriever, and the sizes of its files."""

    files: dict[str, int]
    opened: NotRequired[dict[str, dict[str, int]]]


def memory(models: Mapping[str, str | Path], *, grow: Sequence[int] = GROW, opening: bool = False) -> Finding:
    """Look at saved retrievers, by name; `opening` also measures processes that open and search them."""
    memories: dict[str, ModelMemory] = {}
    for name, path in models.items():
        memories[name] = {**held(load(path), grow), "files": file_sizes(path)}
        if opening:
            memories[name]["opened"] = opened(path)
    return Finding({"models": memories}, _parts(memories), _bars(memories))


def held(retriever: Retriever, grow: Sequence[int] = GROW) -> HeldMemory:
    """The memory that a retriever holds, and would hold with other numbers of documents."""
    if not len(retriever):
        raise UsageError(
            f"this {retriever.kind} retriever has no documents to measure the memory of", "add documents first"
        )
    sizes, now = retriever.sizes, len(retriever)
    present, more = retriever.memory_for(), retriever.memory_for(MORE * now)
    parts: dict[str, PartMemory] = {
        part: {
            "bytes": size.bytes,
            "mapped": size.mapped,
            "gpu": size.gpu,
            "computed": computed(present[part]) if part in present else None,
            "more_a_document": (computed(more.get(part, [])) - computed(present.get(part, []))) / ((MORE - 1) * now),
        }
        for part, size in sizes.items()
    }
    return {
        "kind": retriever.kind,
        "documents": now,
        "parts": parts,
        "bytes": sum(size.bytes for size in sizes.values()),
        "mapped": sum(size.mapped for size in sizes.values()),
        "index_bytes": index_size({part: size.bytes for part, size in sizes.items()}),
        "grown": [_grown(retriever, documents) for documents in grow],
    }


def _grown(retriever: Retriever, documents: int) -> Grown:
    grown = {part: products for part, products in retriever.memory_for(documents).items() if computed(products)}
    parts: dict[str, GrownPart] = {
        part: {"bytes": computed(products), "arithmetic": arithmetic(products)} for part, products in grown.items()
    }
    return {"documents": documents, "bytes": sum(map(computed, grown.values())), "parts": parts}


def arithmetic(products: Sequence[Product]) -> str:
    """A sum of products as text, without those that are less than a thousandth of it."""
    limit = computed(products) / 1000
    return " + ".join(str(product) for product in products if product.bytes >= limit and product.bytes)


def file_sizes(path: str | Path) -> dict[str, int]:
    """The bytes of each file of an artifact, the largest first."""
    with artifact.read(path, check=False) as snapshot:
        sizes = {role: entry.bytes for role, entry in snapshot.manifest.files.items()}
    return dict(sorted(sizes.items(), key=lambda entry: -entry[1]))


# --- what a person sees ---------------------------------------------------------------------------------------


def _parts(models: Mapping[str, ModelMemory]) -> list[Part]:
    parts = [_by_part(models)]
    for name, model in models.items():
        parts += [_growing(name, model), *(_arithmetic(name, grown) for grown in model["grown"]), _on_disk(name, model)]
        parts += [_opened(name, model)] if "opened" in model else []
    return parts


def _by_part(models: Mapping[str, ModelMemory]) -> Part:
    """A row for each part that a model has, and sums."""
    names = dict.fromkeys(part for model in models.values() for part in model["parts"])
    rows = [_row(part, models, lambda model, part=part: _part_bytes(model, part)) for part in names]
    rows += [
        _row("all of it", models, lambda model: f"{model['bytes']:,}"),
        _row("mapped from files", models, lambda model: f"{model['mapped']:,}"),
        _row("index", models, lambda model: f"{model['index_bytes']:,}"),
        _row("documents", models, lambda model: f"{model['documents']:,}"),
        _row("all of it, a document", models, lambda model: f"{model['bytes'] / model['documents']:,.1f}"),
        _row("index, a document", models, lambda model: f"{model['index_bytes'] / model['documents']:,.1f}"),
        _row("files", models, lambda model: f"{sum(model['files'].values()):,}"),
    ]
    return Part("Bytes, once it has searched", rows)


def _row(title: str, models: Mapping[str, ModelMemory], value: Callable[[ModelMemory], str]) -> dict[str, str]:
    return {"what": title, **{name: value(model) for name, model in models.items()}}


def _part_bytes(model: ModelMemory, part: str) -> str:
    return f"{model['parts'][part]['bytes']:,}" if part in model["parts"] else ""


def _growing(name: str, model: ModelMemory) -> Part:
    rows = [
        {
            "what": part,
            "bytes": f"{size['bytes']:,}",
            "computed": "" if size["computed"] is None else f"{size['computed']:,}",
            "each document more": f"{size['more_a_document']:,.1f}" if size["more_a_document"] else "nothing",
            "a search reads": about(part).read,
            "value": about(part).text,
        }
        for part, size in model["parts"].items()
    ]
    return Part(f"{name} ({model['kind']}): what grows, and what does not", rows)


def _arithmetic(name: str, grown: Grown) -> Part:
    rows = [
        {"what": part, "value": size["arithmetic"], "bytes": readable(size["bytes"])}
        for part, size in grown["parts"].items()
    ]
    return Part(f"{name} with {grown['documents']:,} documents like these: {readable(grown['bytes'])}", rows)


def _on_disk(name: str, model: ModelMemory) -> Part:
    files = [*model["files"].items()]
    shown, rest = files[:FILES_SHOWN], files[FILES_SHOWN:]
    rows = [{"file": role, "bytes": f"{size:,}"} for role, size in shown]
    if rest:
        rows.append({"file": f"{len(rest)} others", "bytes": f"{sum(size for _, size in rest):,}"})
    return Part(f"{name} on disk: {readable(sum(model['files'].values()))}", rows)


def _opened(name: str, model: ModelMemory) -> Part:
    rows = [
        {"what": moment, **{where: readable(size) for where, size in sizes.items()}}
        for moment, sizes in model["opened"].items()
    ]
    again = model["opened"]["searched again"]["memory"] - model["opened"]["searched"]["memory"]
    counted = model["bytes"] - model["mapped"]
    lines = [
        f"the second time, when all libraries are there, it adds {readable(again)}; counted are {readable(counted)}"
    ]
    return Part(f"{name}, opened and searched by a process of its own", rows, lines)


def _bars(models: Mapping[str, ModelMemory]) -> list[Bars]:
    names = [*dict.fromkeys(part for model in models.values() for part in model["parts"])]
    each = {
        name: [model["parts"][part]["bytes"] / model["documents"] if part in model["parts"] else None for part in names]
        for name, model in models.items()
    }
    sizes = [f"{grown['documents']:,}" for grown in next(iter(models.values()))["grown"]]
    totals = {name: [grown["bytes"] / GB for grown in model["grown"]] for name, model in models.items()}
    grown = [Bars("GB with so many documents", sizes, totals)] if sizes else []
    return [Bars("Bytes a document", names, each), *grown]
