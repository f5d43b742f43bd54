"""Commands that search and update saved retrievers."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from triever.commands.options import Data, Hits, Json, Model, ReadAs, Root, SearchSettings, SkipBad, Split, Wait
from triever.commands.shared import check_file, open_data
from triever.errors import UsageError
from triever.terminal import emit, note, table

if TYPE_CHECKING:
    from triever.data.records import Hit
    from triever.retriever import Retriever

_log = logging.getLogger("triever")
Query = Annotated[str, typer.Argument(metavar="QUERY", help="The question or words to search for.")]


def search(model: Model, query: Query, k: Hits = 10, set_: SearchSettings = None, json_: Json = False) -> None:
    """Search a saved retriever."""
    retriever = _opened(model, set_)
    result = retriever.search(query, k)
    rows = [
        {"rank": rank, "score": hit.score, **_written(hit), "id": hit.id, "title": document.title}
        for rank, hit in enumerate(result, start=1)
        for document in [retriever.documents.document(hit.id)]
    ]
    emit(rows if json_ else table(rows))
    for message in filter(None, (result.note, result.certificate)):
        note(message)


def _written(hit: Hit) -> dict[str, object]:
    """The probability and the docid of a hit, if the system writes docids."""
    columns: dict[str, object] = {} if hit.logprob is None else {"probability": math.exp(hit.logprob)}
    return columns | ({} if hit.docid is None else {"docid": hit.docid})


def explain(model: Model, query: Query, k: Hits = 10, set_: SearchSettings = None, json_: Json = False) -> None:
    """Search, and show what each score is made of."""
    explanation = _opened(model, set_).explain(query, k)
    emit(explanation.to_dict() if json_ else str(explanation))


def run(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
    split: Split = "test",
    k: Hits = 100,
    set_: SearchSettings = None,
    read_as: ReadAs = "",
    skip_bad: SkipBad = False,
) -> None:
    """Search for every question of a split and write the hits as a TREC run."""
    from triever.data.writers import write_run
    from triever.evaluation.compare import search_all

    check_file(out)
    queries = open_data(data, skip_bad, read_as).queries(split)
    tag = "-".join(model.resolve().name.split()) or "triever"
    write_run(out, search_all(_opened(model, set_), queries, k), tag=tag)
    note(f"wrote {out}: {len(queries):,} questions")


def _opened(model: Path, settings: Sequence[str] | None) -> Retriever:
    """A saved retriever with these settings for its search."""
    from triever.config import assignments
    from triever.retriever import load

    retriever = load(model)
    return retriever.searched_with(assignments(settings)) if settings else retriever


def add(
    model: Model,
    documents: Annotated[
        Path,
        typer.Argument(metavar="DOCUMENTS", help="A file or a folder of documents, in any format that Triever reads."),
    ],
    replace: Annotated[bool, typer.Option("--replace", help="Replace documents that have the same id.")] = False,
    wait: Wait = 0,
    read_as: ReadAs = "",
    root: Root = None,
    skip_bad: SkipBad = False,
) -> None:
    """Add documents to a saved retriever."""
    from triever.data.readers import Problems
    from triever.data.reading import Reading
    from triever.retriever import edit, kept_root

    kept = kept_root(model)
    dataset, problems = open_data(documents, skip_bad, read_as, root, kept), Problems(skip_bad)
    new = list(dataset.stream(problems))
    with edit(model, wait=wait) as retriever:
        known = [document.id for document in new if document.id in retriever.documents]
        first = next((document.id for document in new if document.id not in retriever.documents), "")
        hint = _other_root(retriever, dataset.root, first)
        if known and not replace:
            more = f", and {len(known) - 1:,} more of these documents are too" if len(known) > 1 else ""
            raise UsageError(f"{known[0]} is in {model} already{more}", "replace what it has with --replace")
        if known:
            retriever.delete(known)
        retriever.add(new)
        if root and not kept and dataset.root and root.samefile(dataset.root):
            retriever.keep_root(dataset.root)
    if replace and new and not known:
        _log.warning("--replace replaced nothing: %s has no document with an id such as %s%s", model, new[0].id, hint)
    elif hint:
        _log.warning("%s is added as a new document%s", first, hint)
    if dataset.root and not root and not kept:
        note(f"{model} has no root: ids begin at {dataset.root}; --root sets another folder, and is saved")
    note(f"added {len(new):,} documents, {len(known):,} of them replaced; {len(retriever):,} in all")
    if problems.count:
        note(f"left out {problems.count:,} bad records, such as {problems.examples[0]}")
    note(str(Reading.of(dataset.source, len(new), problems.reasons)))


def _other_root(retriever: Retriever, root: str, new_id: str) -> str:
    """A hint if a file with a new id would be a known document with ids that begin at a folder further up."""
    above = Path(root).parts if root and new_id else ()
    for at in range(1, len(above)):
        key = "/".join((*above[at:], new_id))
        if key in retriever.documents:
            return f"; if it is the same document as {key}, use --root {Path(*above[:at])}"
    return ""


def delete(
    model: Model,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The ids of the documents.")],
    wait: Wait = 0,
) -> None:
    """Delete documents from a saved retriever."""
    from triever.retriever import edit

    with edit(model, wait=wait) as retriever:
        retriever.delete(ids)
    note(f"deleted {len(set(ids)):,} documents; {len(retriever):,} left")


def status(model: Model, json_: Json = False) -> None:
    """Describe a saved retriever, and check every file against its hash."""
    from triever import artifact
    from triever.retriever import MADE_FROM
    from triever.validation import require_table, require_text

    with artifact.read(model) as snapshot, artifact.opening(model, snapshot.manifest.kind):
        snapshot.verify()
        manifest, state = snapshot.manifest, snapshot.manifest.state
        card = snapshot.text("card")
        facts = {"kind": manifest.kind, "options": dict(manifest.options), **require_table(state, "origin")}
        facts |= require_table(state, MADE_FROM)
        facts |= {"documents": snapshot.documents, "fingerprint": require_text(state, "fingerprint")}
    facts |= {"bytes": manifest.bytes, "files": len(manifest.files), "written_by": manifest.written_by}
    emit(facts if json_ else f"{card}\n{len(manifest.files)} files, {manifest.bytes:,} bytes, all as they were saved")
