"""What saved retrievers take in memory and on disk, part by part, and what they would take with more documents.

Every part is counted from what is there, and computed from settings and numbers alone; the arithmetic is shown, for the
documents that there are and for as many more as are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
"""By what is computed for so many times as many documents it is told what grows."""
GB = 10**9


def memory(models: Mapping[str, str | Path], *, grow: Sequence[int] = GROW, opening: bool = False) -> Finding:
    """Look at saved retrievers, by name; `opening` also measures processes that open and search them."""
    found = {}
    for name, path in models.items():
        found[name] = {**held(load(path), grow), "files": file_sizes(path)}
        if opening:
            found[name]["opened"] = opened(path)
    return Finding({"models": found}, _parts(found), _bars(found))


def held(retriever: Retriever, grow: Sequence[int] = GROW) -> dict[str, Any]:
    """What a retriever holds in memory, and would hold with other numbers of documents."""
    if not len(retriever):
        raise UsageError(f"a {retriever.kind} retriever without documents says nothing of memory", "add some first")
    sizes, now = retriever.sizes, len(retriever)
    own, more = retriever.memory_for(), retriever.memory_for(MORE * now)
    parts = {
        part: {
            "bytes": size.bytes,
            "mapped": size.mapped,
            "gpu": size.gpu,
            "computed": computed(own[part]) if part in own else None,
            "more_a_document": (computed(more.get(part, [])) - computed(own.get(part, []))) / ((MORE - 1) * now),
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


def _grown(retriever: Retriever, documents: int) -> dict[str, Any]:
    found = {part: products for part, products in retriever.memory_for(documents).items() if computed(products)}
    parts = {
        part: {"bytes": computed(products), "arithmetic": arithmetic(products)} for part, products in found.items()
    }
    return {"documents": documents, "bytes": sum(map(computed, found.values())), "parts": parts}


def arithmetic(products: Sequence[Product]) -> str:
    """A sum of products for a person, without what is less than a thousandth of it."""
    return " + ".join(str(one) for one in products if one.bytes >= computed(products) / 1000 and one.bytes)


def file_sizes(path: str | Path) -> dict[str, int]:
    """The bytes of each file of an artifact, the largest first."""
    with artifact.read(path, check=False) as snapshot:
        sizes = {role: entry.bytes for role, entry in snapshot.manifest.files.items()}
    return dict(sorted(sizes.items(), key=lambda one: -one[1]))


# --- what a person sees ---------------------------------------------------------------------------------------


def _parts(models: Mapping[str, Mapping[str, Any]]) -> list[Part]:
    parts = [_by_part(models)]
    for name, model in models.items():
        parts += [_growing(name, model), *(_arithmetic(name, one) for one in model["grown"]), _on_disk(name, model)]
        parts += [_opened(name, model)] if "opened" in model else []
    return parts


def _by_part(models: Mapping[str, Mapping[str, Any]]) -> Part:
    """A row for each part that any of them has, and sums."""
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


def _row(what: str, models: Mapping[str, Mapping[str, Any]], value: Any) -> dict[str, str]:
    return {"what": what, **{name: value(model) for name, model in models.items()}}


def _part_bytes(model: Mapping[str, Any], part: str) -> str:
    return f"{model['parts'][part]['bytes']:,}" if part in model["parts"] else ""


def _growing(name: str, model: Mapping[str, Any]) -> Part:
    rows = [
        {
            "what": part,
            "bytes": f"{one['bytes']:,}",
            "computed": "" if one["computed"] is None else f"{one['computed']:,}",
            "each document more": f"{one['more_a_document']:,.1f}" if one["more_a_document"] else "nothing",
            "a search reads": about(part).read,
            "value": about(part).text,
        }
        for part, one in model["parts"].items()
    ]
    return Part(f"{name} ({model['kind']}): what grows, and what does not", rows)


def _arithmetic(name: str, grown: Mapping[str, Any]) -> Part:
    rows = [
        {"what": part, "value": one["arithmetic"], "bytes": readable(one["bytes"])}
        for part, one in grown["parts"].items()
    ]
    return Part(f"{name} with {grown['documents']:,} documents like these: {readable(grown['bytes'])}", rows)


def _on_disk(name: str, model: Mapping[str, Any]) -> Part:
    files = [*model["files"].items()]
    shown, others = files[:FILES_SHOWN], files[FILES_SHOWN:]
    rows = [{"file": role, "bytes": f"{size:,}"} for role, size in shown]
    if others:
        rows.append({"file": f"{len(others)} others", "bytes": f"{sum(size for _, size in others):,}"})
    return Part(f"{name} on disk: {readable(sum(model['files'].values()))}", rows)


def _opened(name: str, model: Mapping[str, Any]) -> Part:
    rows = [
        {"what": moment, **{where: readable(size) for where, size in sizes.items()}}
        for moment, sizes in model["opened"].items()
    ]
    again = model["opened"]["searched again"]["memory"] - model["opened"]["searched"]["memory"]
    own = model["bytes"] - model["mapped"]
    lines = [f"the second time, when all libraries are there, it adds {readable(again)}; counted are {readable(own)}"]
    return Part(f"{name}, opened and searched by a process of its own", rows, lines)


def _bars(models: Mapping[str, Mapping[str, Any]]) -> list[Bars]:
    names = [*dict.fromkeys(part for model in models.values() for part in model["parts"])]
    each = {
        name: [model["parts"][part]["bytes"] / model["documents"] if part in model["parts"] else None for part in names]
        for name, model in models.items()
    }
    sizes = [f"{grown['documents']:,}" for grown in next(iter(models.values()))["grown"]]
    totals = {name: [grown["bytes"] / GB for grown in model["grown"]] for name, model in models.items()}
    grown = [Bars("GB with so many documents", sizes, totals)] if sizes else []
    return [Bars("Bytes a document", names, each), *grown]
