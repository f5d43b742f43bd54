"""Commands that search and update saved retrievers."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from triever.commands.options import (
    Data,
    Hits,
    Json,
    Model,
    On,
    ReadAs,
    Root,
    SearchSettings,
    SkipBad,
    Split,
    Wait,
    Where,
)
from triever.commands.shared import check_file, check_replaced, open_data
from triever.errors import UsageError
from triever.printable import an, count_of, shortened
from triever.terminal import answered, emit, emit_line, note, said, table

if TYPE_CHECKING:
    from triever.data.readers import Problems
    from triever.data.records import Answer, Hit, Result
    from triever.engines.docid_tree import DocidBranch
    from triever.retriever import Retriever
    from triever.sync import Plan

_log = logging.getLogger("triever")
Query = Annotated[str, typer.Argument(metavar="QUERY", help="The question or words to search for.")]


def search(
    model: Model,
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            help="The question or words to search for; - reads one from each line of standard input that is not blank. "
            "Without it, in a terminal, queries are asked for.",
            show_default=False,
        ),
    ] = None,
    k: Hits = 10,
    where: Where = None,
    text: Annotated[bool, typer.Option("--text", help="Show what documents say about the query.")] = False,
    set_: SearchSettings = None,
    on: On = None,
    json_: Json = False,
) -> None:
    """Search a saved retriever."""
    if query is None and not sys.stdin.isatty():
        raise UsageError("there is no query", "give one, or - to read one from each line of standard input")
    wanted = _filter(where)
    retriever = _opened(model, set_, on)
    show = partial(_show, text=text, json_=json_)
    if query is not None and query != "-":
        show(query, retriever.search(query, k, where=wanted))
        return
    for asked in _asked(sys.stdin, "query", prompt=query is None):
        show(asked, retriever.search(asked, k, where=wanted), several=True)


def _asked(lines: IO[str], noun: str, *, prompt: bool) -> Iterator[str]:
    """The queries of lines that are not blank; they are asked for by what they are called, if a person types them."""
    while True:
        if prompt:
            sys.stderr.write(f"{noun}: ")
            sys.stderr.flush()
        line = lines.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


def _show(query: str, result: Result, *, text: bool, json_: bool, several: bool = False) -> None:
    """Print the hits of a query: as a table, as what they say, or as JSON; of several queries a line of JSON each."""
    if several and not json_:
        emit(f"== {query}")
    if json_:
        thought = {"thought": result.thought} if result.thought else {}
        rows = [_row(rank, hit) | _said(hit, text) for rank, hit in enumerate(result, start=1)]
        emit_line({"query": query, **thought, "hits": rows}) if several else emit([row | thought for row in rows])
    elif text:
        emit(said(result))
    else:
        emit(table([_short(_row(rank, hit)) for rank, hit in enumerate(result, start=1)]))
    thought = f"thought: {result.thought}" if result.thought else ""
    for message in filter(None, (thought, result.note, result.certificate)):
        note(message)


def _row(rank: int, hit: Hit) -> dict[str, object]:
    return {"rank": rank, "score": hit.score, **_written(hit), "id": hit.id, "title": hit.title}


def _short(row: dict[str, object]) -> dict[str, object]:
    """A row for a table, with the beginning of a long title or docid: where output is piped, nothing else cuts it."""
    return {key: shortened(str(value)) if key in ("docid", "title") else value for key, value in row.items()}


def _said(hit: Hit, whole: bool) -> dict[str, object]:
    """What a document says about the query, and its metadata; its whole text too, if that is wanted."""
    facts: dict[str, object] = {"snippet": str(hit.snippet), "metadata": dict(hit.metadata)}
    facts |= {"span": list(hit.span)} if hit.span else {}
    return {**facts, "text": hit.text} if whole else facts


def _written(hit: Hit) -> dict[str, object]:
    """The probability and the docid of a hit, if the system writes docids."""
    columns: dict[str, object] = {} if hit.logprob is None else {"probability": math.exp(hit.logprob)}
    return columns | ({} if hit.docid is None else {"docid": hit.docid})


def ask(
    model: Model,
    question: Annotated[
        str | None,
        typer.Argument(
            metavar="QUESTION",
            help="The question; - reads one from each line of standard input that is not blank. Without it, in a "
            "terminal, questions are asked for.",
            show_default=False,
        ),
    ] = None,
    where: Where = None,
    set_: SearchSettings = None,
    on: On = None,
    json_: Json = False,
) -> None:
    """Answer a question from the documents of a saved model that reads: reatt or answerer."""
    from triever.retriever import Asks

    if question is None and not sys.stdin.isatty():
        raise UsageError("there is no question", "give one, or - to read one from each line of standard input")
    wanted = _filter(where)
    retriever = _opened(model, set_, on)
    if not isinstance(retriever, Asks):
        problem = f"{model} is {an(retriever.kind)} retriever, which finds documents and does not answer"
        raise UsageError(problem, "make one that answers: triever fit reatt, or triever fit answerer")
    tell = partial(_tell, shared=getattr(retriever, "shared", "attention"), json_=json_)
    if question is not None and question != "-":
        tell(retriever.ask_many([question], where=wanted)[0])
        return
    for asked in _asked(sys.stdin, "question", prompt=question is None):
        tell(retriever.ask_many([asked], where=wanted)[0], several=True)


def _tell(answer: Answer, shared: str, *, json_: bool, several: bool = False) -> None:
    """Print an answer, for a person or as JSON; of several answers a line of JSON each."""
    if json_:
        emit_line(answer.to_dict()) if several else emit(answer.to_dict())
    else:
        emit(answered(answer, shared))
    if answer.note:
        note(answer.note)


def explain(
    model: Model,
    query: Query,
    k: Hits = 10,
    where: Where = None,
    set_: SearchSettings = None,
    on: On = None,
    json_: Json = False,
) -> None:
    """Search, and show what each score is made of."""
    wanted = _filter(where)
    explanation = _opened(model, set_, on).explain(query, k, where=wanted)
    emit(explanation.to_dict() if json_ else str(explanation))


def docids_browse(
    model: Model,
    prefix: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SYMBOL...",
            help="The first symbols of docids, as they are shown. Default: none.",
            show_default=False,
        ),
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=0, help="How many documents to name for a symbol.")] = 3,
    offset: Annotated[int, typer.Option("--offset", min=0, help="How many symbols to leave out at first.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many symbols to show at most.")] = 100,
    json_: Json = False,
) -> None:
    """Show which symbols may follow a prefix of the docids of a saved retriever, and the documents below each."""
    node = _opened(model, None).browse(prefix or (), samples=samples, offset=offset, limit=limit)
    if json_:
        emit(node.to_dict())
        return
    if node.ends:
        emit(table([_short({"id": document, "title": title}) for document, title in node.samples]))
    else:
        emit(table([_branch(branch) for branch in node.branches]))
    shown = f"; {node.offset + 1:,} to {node.offset + len(node.branches):,} of {node.total:,} symbols are shown"
    more = shown if len(node.branches) < node.total else ""
    docids = f"a docid that {'is' if node.ends else 'begins with'} {node.docid!r}" if node.prefix else "docids"
    note(f"{node.documents:,} documents have {docids}{more}")


def _branch(branch: DocidBranch) -> dict[str, object]:
    """A row of a table."""
    named = "; ".join(f"{document} ({shortened(title)})" if title else document for document, title in branch.samples)
    return {
        "symbol": branch.text,
        "documents": branch.documents,
        "ends": "yes" if branch.ends else "",
        "such as": named,
    }


def run(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
    split: Split = "test",
    k: Hits = 100,
    set_: SearchSettings = None,
    query_vectors: Annotated[
        Path | None,
        typer.Option(
            help="With a model of the system given: vectors of the questions, as .npy, Parquet or a faiss index.",
        ),
    ] = None,
    query_ids: Annotated[
        Path | None,
        typer.Option(
            help="The id of the question of each row of --query-vectors. Default: NAME.ids.txt beside NAME.npy.",
        ),
    ] = None,
    on: On = None,
    read_as: ReadAs = "",
    skip_bad: SkipBad = False,
) -> None:
    """Search for every question of a split and write the hits as a TREC run."""
    from triever.data.formats.sniff import Format
    from triever.data.writers import write_run
    from triever.evaluation.compare import search_all

    check_file(out)
    check_replaced(out, "TREC run", Format.RUN)
    queries = open_data(data, skip_bad, read_as).queries(split)
    tag = "-".join(model.resolve().name.split()) or "triever"
    retriever = _opened(model, set_, on)
    if query_vectors or query_ids:
        questions = {query.id: query.text for query in queries}
        retriever = _asked_with(retriever, questions, query_vectors, query_ids)
    write_run(out, search_all(retriever, queries, k), tag=tag)
    note(f"wrote {out}: {len(queries):,} questions")


def _asked_with(
    retriever: Retriever, questions: Mapping[str, str], vectors: Path | None, ids: Path | None
) -> Retriever:
    """The retriever, which knows the vectors of questions, whose texts are given by their ids."""
    from triever.index.vector_files import VectorFile
    from triever.retrievers.given import GivenVectors, query_vectors

    if not isinstance(retriever, GivenVectors):
        problem = f"{an(retriever.kind)} retriever encodes questions itself"
        raise UsageError(problem, "leave --query-vectors out, or fit the system given")
    file = VectorFile(str(vectors or ""), str(ids or ""))
    texts, array = query_vectors(file, questions, "this split")
    return retriever.asked_with(dict(zip(texts, array, strict=True)))


def vectors(
    model: Model,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="The file to write: .npy or .faiss, each with NAME.ids.txt beside it, or .parquet with both.",
        ),
    ],
) -> None:
    """Write the vectors of the documents of a saved retriever, for other programs: NumPy, Parquet or faiss."""
    from triever.engines.encoded import DenseEngine
    from triever.engines.given import GivenEngine
    from triever.index.vector_files import write_vectors

    check_file(out)
    retriever = _opened(model, None)
    engine = retriever.engine
    if not isinstance(engine, DenseEngine | GivenEngine):
        problem = f"{model} is {an(retriever.kind)} retriever, which has no vector for each document"
        raise UsageError(problem, "name a model of the system dense or given")
    written = write_vectors(out, retriever.searched.ids, engine.index)
    size = f"{len(retriever.searched):,} vectors of {engine.index.width} numbers"
    note(f"wrote {' and '.join(map(str, written))}: {size}")


def _filter(where: Sequence[str] | None) -> dict[str, object]:
    """The filter that conditions describe; a slip in one is named before a model is opened."""
    from triever.data.filters import Filter, parsed_where

    wanted = parsed_where(where or ())
    Filter.of(wanted)
    return wanted


def _opened(model: Path, settings: Sequence[str] | None, on: str | None = None) -> Retriever:
    """A saved retriever with these settings for its search, whose shards may be elsewhere."""
    from triever.config import assignments
    from triever.retriever import load

    retriever = load(model, on=on)
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
    from triever.sync import Plan

    kept = kept_root(model)
    dataset, problems = open_data(documents, skip_bad, read_as, root, kept), Problems(skip_bad)
    new = list(dataset.stream(problems))
    with edit(model, wait=wait) as retriever:
        known = [document.id for document in new if document.id in retriever.documents]
        if known and not replace:
            more = f", and {len(known) - 1:,} more of these documents are too" if len(known) > 1 else ""
            raise UsageError(f"{known[0]} is in {model} already{more}", "replace what it has with --replace")
        first = next((document.id for document in new if document.id not in retriever.documents), "")
        hint = _other_root(retriever, dataset.root, first)
        plan = Plan.of(retriever.documents, new, deletes=False)
        plan.carry_out(retriever)
        if root and not kept and dataset.root and root.samefile(dataset.root):
            retriever.keep_root(dataset.root)
    if replace and new and not known:
        _log.warning("--replace replaced nothing: %s has no document with an id such as %s%s", model, new[0].id, hint)
    elif hint:
        _log.warning("%s is added as a new document%s", first, hint)
    if dataset.root and not root and not kept:
        note(f"{model} has no root: ids begin at {dataset.root}; --root sets another folder, and is saved")
    same = f", {plan.unchanged:,} as they were" if plan.unchanged else ""
    added = count_of(len(plan.added), "document")
    note(f"added {added}, replaced {len(plan.replaced):,}{same}; {len(retriever):,} in all")
    _note_left_out(problems)
    note(str(Reading.of(dataset.source, len(new), problems)))


def sync(
    model: Model,
    folder: Annotated[
        Path,
        typer.Argument(metavar="DOCUMENTS", help="A folder or a file that holds all documents, as they should be now."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete documents even if that is more than half.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on whenever files change, until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.1, metavar="SECONDS", help="How long to wait before looking again.")
    ] = 2,
    wait: Wait = 0,
    read_as: ReadAs = "",
    root: Root = None,
    skip_bad: SkipBad = False,
    json_: Json = False,
) -> None:
    """Bring a saved retriever to the state of a folder: add, replace and delete documents that differ."""
    from triever.sync import file_marks

    seen: Mapping[str, tuple[int, int]] | None = None
    while True:
        now = file_marks(folder) if watch else {}  # who looks once need not know what has changed since
        if now != seen:
            plan = _synced(model, folder, dry_run=dry_run, yes=yes, wait=wait, reading=(skip_bad, read_as, root))
            emit_line(plan.to_dict()) if json_ else emit(f"{'would do: ' if dry_run else ''}{plan}")
            seen = now
        if not watch or dry_run:
            return
        time.sleep(every)


def _synced(
    model: Path, folder: Path, *, dry_run: bool, yes: bool, wait: float, reading: tuple[bool, str, Path | None]
) -> Plan:
    """Bring a retriever to the state of a folder, and say what was done, or would be."""
    from triever.data.readers import Problems
    from triever.retriever import edit, kept_root, load
    from triever.sync import Plan

    skip_bad, read_as, root = reading
    dataset, problems = open_data(folder, skip_bad, read_as, root, kept_root(model)), Problems(skip_bad)
    documents = list(dataset.stream(problems))
    _note_left_out(problems)
    if dry_run:
        plan = Plan.of(load(model).documents, documents)
    else:
        with edit(model, wait=wait) as retriever:
            plan = Plan.of(retriever.documents, documents)
            if plan.deletes_much and not yes:
                problem = f"{len(plan.deleted):,} of {len(retriever):,} documents of {model} are not in {folder}"
                raise UsageError(f"{problem}, and would be deleted", "check the folder, or say --yes")
            plan.carry_out(retriever)
    if problems.count and plan.deleted:
        first, done = plan.deleted[0], "would be" if dry_run else "is"
        note(f"what was left out counts as gone: {first} {done} deleted; mend its file and sync again to keep it")
    return plan


def _note_left_out(problems: Problems) -> None:
    if problems.count:
        note(f"left out {count_of(problems.count, 'bad record')}, such as {problems.examples[0]}")


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
    note(f"deleted {count_of(len(set(ids)), 'document')}; {len(retriever):,} left")


def shard(
    model: Model,
    into: Annotated[int, typer.Option("--into", min=1, metavar="N", help="How many shards to make.")],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The folder to write to.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace a retriever that is there already.")] = False,
) -> None:
    """Put a saved retriever into shards, which are searched together, here or on several machines."""
    from triever import artifact
    from triever.retriever import load

    artifact.check_place(out, replace=replace)
    retriever = load(model)
    retriever.save(out, replace=replace, shards=into)
    note(f"wrote {out}: {retriever.kind} with {len(retriever):,} documents in {into:,} shards")


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
