"""The tables of docs/scale.md, made from what two benchmarks have written: `python -m tests.scale_page`.

`memory.py` counts and computes bytes, `scale.py` runs what is large.

The text around them is written by hand; each table stands between two comments that name it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triever.memory_parts import PARTS, Line, fitted, readable

ROOT = Path(__file__).parent.parent
PAGE, RESULT = ROOT / "docs" / "scale.md", ROOT / "benchmarks" / "memory.json"
RUNS = ROOT / "benchmarks" / "scale.json"
MARKED = re.compile(r"<!-- made: ([a-z ]+) -->\n.*?<!-- end -->", re.DOTALL)
DOCUMENTS = "documents"
SIZES = (10**7, 10**8, 10**9)
GB, MANY = 10**9, 10**10
ONE_MACHINE = 24 * 2**30
COMPUTED = ("bm25", "dense, float32", "dense, ivfpq", "multivector, 2 bits", "generative, codebook", "gdr")
MACHINES, GPUS = (64 * GB, 512 * GB), (80 * GB, 141 * GB)
MODEL = ("weights", "docid rows")
ON_GPU = (*MODEL, "walk")
"""What a GPU holds of any model; vectors come to it where half of what is left then holds them."""
MATCHED = ("vectors", "cluster vectors", "token vectors")
ADDING = ("placer", "placing", "terms")
WIDTH, CLUSTERS = 20, 1000
"""Clusters that a search of `gdr` looks into, of how many."""
LEARNED = ("generative, atomic", "generative, codebook", "contextual", "gdr")
TRAINED = 4
"""A weight, its gradient and two moments of AdamW."""


@dataclass(frozen=True)
class Grown:
    """What a system takes with some number of documents."""

    parts: Mapping[str, int]
    arithmetic: Mapping[str, str]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Grown:
        sizes = {part: one["computed"] for part, one in row["parts"].items()}
        return cls(sizes, {part: one["arithmetic"] for part, one in row["parts"].items()})

    def sum(self, wanted: Callable[[str], bool] = lambda _part: True) -> int:
        """The bytes of the parts that are wanted, by the last words of their names."""
        return sum(size for part, size in self.parts.items() if wanted(part.rpartition(": ")[2]))

    @property
    def memory(self) -> int:
        """What an opened model holds and cannot drop."""
        return self.sum(lambda part: not PARTS[part].mapped)

    @property
    def searched(self) -> int:
        """What is mapped, and read by searches."""
        return self.sum(lambda part: PARTS[part].mapped and PARTS[part].read != "none")


@dataclass(frozen=True)
class Scale:
    """All rows of the benchmark."""

    rows: Sequence[Mapping[str, Any]]

    @property
    def systems(self) -> list[str]:
        return [name for name in dict.fromkeys(row["system"] for row in self.rows) if name != DOCUMENTS]

    def at(self, system: str, documents: int) -> Grown:
        return Grown.of(next(row for row in self.rows if (row["system"], row["documents"]) == (system, documents)))

    def largest(self, system: str) -> Mapping[str, Any]:
        """The row of the largest size that was built."""
        return [row for row in self.rows if row["system"] == system and "built" in row][-1]

    def line(self, system: str, of: Callable[[Grown], int]) -> Line:
        """How something grows between the largest sizes."""
        return fitted({documents: of(self.at(system, documents)) for documents in SIZES[1:]})


def table(rows: Iterable[Mapping[str, str]]) -> str:
    listed = list(rows)
    lines = [listed[0].keys(), ["---"] * len(listed[0]), *(row.values() for row in listed)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def told(documents: int) -> str:
    return {10**7: "10 million", 10**8: "100 million", 10**9: "a billion"}[documents]


# --- the tables -----------------------------------------------------------------------------------------------


def answer(scale: Scale) -> str:
    """The largest number of documents for each system and memory, with all that a search reads in it."""
    rows = []
    for name in (*scale.systems, DOCUMENTS):
        fast = scale.line(name, lambda grown: grown.memory + grown.searched)
        row = {"system": name, "bytes for a document": _each(fast)}
        row |= {f"{room // GB} GB of memory": _most(fast, room) for room in MACHINES}
        rows.append(row | {f"a GPU of {room // GB} GB": _most_on_gpu(scale, name, room) for room in GPUS[:1]})
    return table(rows)


def parts(_scale: Scale) -> str:
    return table(
        {
            "part": name,
            "what it is": one.text,
            "a search reads": one.read,
            "an opened model has it": "mapped from its file" if one.mapped else "in memory",
            "index": "yes" if one.is_index else "",
        }
        for name, one in PARTS.items()
    )


def counted(scale: Scale) -> str:
    rows = []
    for system in (DOCUMENTS, *scale.systems):
        row = scale.largest(system)
        of_parts = sum(part["computed"] for part in row["parts"].values())
        rows.append(
            {
                "system": system,
                "documents": f"{row['documents']:,}",
                "counted": f"{row['bytes']:,}",
                "computed": _off(of_parts, row["bytes"]),
                "computed from the size before": _off(row["by_the_smaller_one"], row["bytes"]),
                "by a line through two sizes": _off(row["by_a_line"], row["bytes"]),
                "how it was built": row["built"],
            }
        )
    return table(rows)


def _off(found: int, size: int) -> str:
    return "the same" if found == size else f"{100 * (found - size) / size:+.2f}%"


def sizes(scale: Scale) -> str:
    return "\n\n".join(f"**{told(size).capitalize()} documents**\n\n{_size(scale, size)}" for size in SIZES)


def _size(scale: Scale, documents: int) -> str:
    return table(_size_row(name, scale.at(name, documents)) for name in (*scale.systems, DOCUMENTS))


def _size_row(name: str, grown: Grown) -> dict[str, str]:
    groups = {
        "model": grown.sum(lambda part: part in MODEL),
        "index": grown.sum(lambda part: PARTS[part].is_index),
        "to add documents": grown.sum(lambda part: part in ADDING),
    }
    beside = grown.sum() - sum(groups.values())
    shown = {**groups, "beside these": beside, "all": grown.sum(), "of it in memory": grown.memory}
    return {"system": name, **{what: readable(size) if size else "" for what, size in shown.items()}}


def sums(scale: Scale) -> str:
    return "\n".join(
        line for name in (*scale.systems, DOCUMENTS) for line in _sum_lines(name, scale.at(name, SIZES[-1]))
    )


def _sum_lines(name: str, grown: Grown) -> list[str]:
    lines = [f"- **{name}**: {readable(grown.sum())}"]
    for part, size in grown.parts.items():
        if size >= grown.sum() / 200 or part in MODEL:
            lines.append(f"    - {part}: {grown.arithmetic[part]} = {readable(size)}")
    return lines


def fits(scale: Scale) -> str:
    return "\n\n".join(f"**{told(size).capitalize()} documents**\n\n{_fits(scale, size)}" for size in SIZES)


def _fits(scale: Scale, documents: int) -> str:
    own = scale.at(DOCUMENTS, documents).memory
    rows = []
    for name in scale.systems:
        grown = scale.at(name, documents)
        alone = {f"{size // GB} GB": _on_machine(grown, size) for size in MACHINES}
        both = {f"{size // GB} GB, documents too": _on_machine(grown, size - own) for size in MACHINES}
        gpus = {f"GPU of {size // GB} GB": _on_gpu(grown, size) for size in GPUS}
        rows.append({"system": name, **alone, **both, **gpus})
    return table(rows)


def _on_machine(grown: Grown, room: int) -> str:
    if grown.memory + grown.searched <= room:
        return "memory"
    return "disk" if grown.memory <= room else "no"


def _on_gpu(grown: Grown, room: int) -> str:
    model, matched = _gpu_parts(grown)
    if not model:
        return ""
    if (matched or "walk" in grown.parts) and model + 2 * matched <= room:
        return "all"
    return "model" if model <= room else "no"


def _gpu_parts(grown: Grown) -> tuple[int, int]:
    return grown.sum(lambda part: part in ON_GPU), grown.sum(lambda part: part in MATCHED)


def stops(scale: Scale) -> str:
    return table(_stop_row(scale, name) for name in (*scale.systems, DOCUMENTS))


def _stop_row(scale: Scale, name: str) -> dict[str, str]:
    memory = scale.line(name, lambda one: one.memory)
    fast = scale.line(name, lambda one: one.memory + one.searched)
    mapped = scale.line(name, lambda one: one.sum() - one.memory)
    row = {"system": name, "in memory, each": _each(memory), "mapped, each": _each(mapped)}
    for room in MACHINES:
        row[f"{room // GB} GB, all in memory"] = _most(fast, room)
        row[f"{room // GB} GB, files on disk"] = _most(memory, room)
    return row | {f"GPU of {room // GB} GB, all": _most_on_gpu(scale, name, room) for room in GPUS}


def _most_on_gpu(scale: Scale, name: str, room: int) -> str:
    line = scale.line(name, lambda one: _gpu_parts(one)[0] + 2 * _gpu_parts(one)[1])
    return _most(line, room) if line.each > 0 else ""


def _each(line: Line) -> str:
    return f"{line.each:,.1f}" if line.each >= 0.05 else "0"


def _most(line: Line, room: int) -> str:
    """The largest number of documents for which there is room, with two digits."""
    most = (room - line.fixed) / line.each if line.each > 0 else math.inf
    if most > MANY:
        return f"more than {MANY // 10**9} billion"
    digits = 10 ** max(0, math.floor(math.log10(max(most, 1))) - 1)
    number = int(most // digits * digits)
    return f"{number / 10**6:,.1f} million" if number < 10**7 else f"{number // 10**6:,} million"


def reads(scale: Scale) -> str:
    rows = []
    for documents in SIZES:
        flat = scale.at("dense, float32", documents).parts["vectors"]
        cluster = scale.at("gdr", documents).parts["cluster vectors"]
        many = round(documents**0.5)
        fewer = f"{readable(cluster * WIDTH / many)} of {many:,}"
        rows.append(
            {
                "documents": told(documents),
                "dense, float32: all": readable(flat),
                f"gdr: {WIDTH} of {CLUSTERS:,} clusters": readable(cluster * WIDTH / CLUSTERS),
                "documents in a cluster": f"{documents // CLUSTERS:,}",
                f"{WIDTH} of as many clusters as the root of documents": fewer,
            }
        )
    return table(rows)


def learned(scale: Scale) -> str:
    rows = []
    for documents in SIZES:
        row = {"documents": told(documents)}
        for name in LEARNED:
            parts = scale.at(name, documents).parts
            times = 1 if name == "contextual" else TRAINED  # whose rows are given, not learned
            trained = TRAINED * parts["weights"] + times * parts["docid rows"]
            row[name] = f"{readable(parts['weights'] + parts['docid rows'])}, {readable(trained)}"
        rows.append(row)
    return table(rows)


def runs(_scale: Scale) -> str:
    """What `benchmarks/scale.py` has run of fits and searches."""
    rows = [row for row in _runs() if row["step"] in ("fit", "search")]
    return table(_run_row(row) for row in rows)


def _run_row(row: Mapping[str, Any]) -> dict[str, str]:
    fits = row["step"] == "fit"
    timed = f"{_seconds(row['fit_s'])} and {_seconds(row['save_s'])} to save" if fits else _search_times(row)
    return {
        "system": {"bm25": "BM25", "titles": "titles in a trie", "dense": "dense, flat", "ivfpq": "dense, ivfpq"}[
            row["name"]
        ],
        "documents": f"{row['count']:,}",
        "step": "fit and save" if fits else "load and search",
        "time": timed,
        "memory": readable(row["memory_mb"] * 2**20),
        "with pages of files": readable(row["with_files_mb"] * 2**20),
        "on disk": f"{readable(row['bytes'])}, {row['bytes_a_document']:,.0f} bytes each" if fits else "",
    }


def _search_times(row: Mapping[str, Any]) -> str:
    return f"{_seconds(row['load_s'])} to load, {row['search_ms']:.0f} ms a search"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:,.0f} s"


def tries(_scale: Scale) -> str:
    """What `benchmarks/scale.py` has run of tries."""
    return table(
        {
            "docids": f"{row['count']:,}",
            "build": _seconds(row["build_s"]),
            "save": _seconds(row["save_s"]),
            "open, all checked": _seconds(row["open_s"]),
            "memory": readable(row["memory_mb"] * 2**20),
            "with pages of files": readable(row["with_files_mb"] * 2**20),
            "bytes a docid": f"{row['bytes_a_docid']:.1f}",
        }
        for row in _runs()
        if row["step"] == "trie"
    )


def _runs() -> list[dict[str, Any]]:
    return json.loads(RUNS.read_text(encoding="utf-8"))["rows"]


def machine(scale: Scale) -> str:
    """The largest numbers of documents for one machine of 24 GiB, computed."""
    documents = scale.line(DOCUMENTS, lambda grown: grown.memory)
    rows = []
    for name in COMPUTED:
        memory = scale.line(name, lambda grown: grown.memory)
        fast = scale.line(name, lambda grown: grown.memory + grown.searched)
        with_lookup = [Line(line.fixed, line.each + documents.each) for line in (fast, memory)]
        rows.append(
            {
                "system": name,
                "all that a search reads in memory": _most(with_lookup[0], ONE_MACHINE),
                "mapped files left on disk": _most(with_lookup[1], ONE_MACHINE),
            }
        )
    return table(rows)


BLOCKS: dict[str, Callable[[Scale], str]] = {
    "answer": answer,
    "parts": parts,
    "counted": counted,
    "sizes": sizes,
    "sums": sums,
    "fits": fits,
    "stops": stops,
    "reads": reads,
    "learned": learned,
    "runs": runs,
    "tries": tries,
    "machine": machine,
}


def render(page: str, result: Mapping[str, Any]) -> str:
    """The page with its tables made anew; every table has to be in it once."""
    scale = Scale(result["rows"])
    named = MARKED.findall(page)
    assert sorted(named) == sorted(BLOCKS), f"the page has {named}"
    return MARKED.sub(lambda found: f"<!-- made: {found[1]} -->\n\n{BLOCKS[found[1]](scale)}\n\n<!-- end -->", page)


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(render(page, json.loads(RESULT.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
