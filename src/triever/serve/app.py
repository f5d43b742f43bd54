"""The routes of the server: what a path takes, which retriever is asked, and what is sent back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, HTMLResponse, Response
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

import triever.serve.bodies as bodies
import triever.serve.docid_routes as docid_routes
import triever.serve.front as front
import triever.serve.result_routes as result_routes
from triever.arguments import table
from triever.data.filters import Filter
from triever.data.records import Document, normalise
from triever.errors import TrieverError, UsageError
from triever.printable import an
from triever.remote import document_values
from triever.retriever import Asks, Explanation, Retriever, questions_of
from triever.serve.answers import hit_values, result_values, to_json
from triever.serve.batches import DeadlinePassed, Job, QueueFull
from triever.serve.guard import Guard
from triever.serve.metrics import Metrics
from triever.serve.options import ServeOptions
from triever.serve.refusals import Refusal, check_finite, of_error, of_http, of_validation
from triever.serve.served import NotSaved, Served, Source
from triever.serve.shelf import SNAPSHOT, Shelf, Shelved, errors, not_ready
from triever.sync import Plan
from triever.version import __version__

T = TypeVar("T")
LOOKED_UP = 100
"""Documents at most that one request may look up."""
LOGGED = ("unavailable", "internal_error")
"""What the log has to say more about than the client is told."""
ABOUT = (
    "Searches with the retrievers of Triever. Every error has the body {code, message, hint}. Changes of documents "
    "need the key of the server, as the header `Authorization: Bearer KEY`."
)

_log = logging.getLogger("triever.serve")


Key = Annotated[Any, Depends(HTTPBearer(auto_error=False, description="The key of the server."))]
RetrieverName = Annotated[str | None, Query(description="The name of a retriever; without one, the first.")]
Ids = Annotated[list[str], Query(alias="id", min_length=1, max_length=LOOKED_UP, description="Ids of documents.")]


ASKED = errors("malformed_json", "unknown_retriever", "queue_full", "loading", "unavailable", "deadline_passed")
CHANGED = errors(
    *("malformed_json", "wrong_key", "read_only", "unknown_retriever", "loading", "unavailable", "busy", "not_saved")
)
router = APIRouter()


# Asking


@router.post("/v1/search", responses={200: {"model": bodies.SearchAnswer}, **ASKED}, tags=["search"])
async def search(body: bodies.SearchRequest, request: Request, shelf: Shelved) -> Response:
    """Search with one retriever, for one query or many."""
    served, texts = shelf.ready(body.retriever), shelf.texts(body.query, body.queries, "query")
    shelf.check_hits(body.k, len(texts), body.show)
    request.state.queries = texts

    def finish(retriever: Retriever, results: list[Any]) -> bytes:
        values = [result_values(result, text, body.show) for result, text in zip(results, texts, strict=True)]
        return to_json({**_state(served, retriever), "results": values})

    job = _search_job(shelf, texts, body, finish)
    return _json(await _unless_left(request, served.submit(job)))


@router.post("/v1/compare", responses={200: {"model": bodies.CompareAnswer}, **ASKED}, tags=["search"])
async def compare(body: bodies.CompareRequest, request: Request, shelf: Shelved) -> Response:
    """Search with several retrievers, side by side."""
    chosen = [shelf.ready(name) for name in dict.fromkeys(body.retrievers or shelf.served)]
    texts = shelf.texts(body.query, None, "query")
    shelf.check_hits(body.k, len(chosen), body.show)
    request.state.queries = texts

    def finish_for(served: Served) -> Any:
        def finish(retriever: Retriever, results: list[Any]) -> dict[str, Any]:
            return _state(served, retriever) | result_values(results[0], body.query, body.show)

        return finish

    jobs = [served.submit(_search_job(shelf, texts, body, finish_for(served))) for served in chosen]
    results = await _unless_left(request, asyncio.gather(*jobs))
    return _json(to_json({"query": body.query, "results": results}))


@router.post("/v1/explain", responses={200: {"model": bodies.ExplainAnswer}, **ASKED}, tags=["search"])
async def explain(body: bodies.ExplainRequest, request: Request, shelf: Shelved) -> Response:
    """Search with one retriever, and say why each document was found."""
    served, texts = shelf.ready(body.retriever), shelf.texts(body.query, None, "query")
    shelf.check_hits(body.k, 1, body.show)
    request.state.queries = texts
    where = _where(body.where)

    def compute(retriever: Retriever, texts: Sequence[str]) -> list[Explanation]:
        return [retriever.explain(text, body.k, where=where) for text in texts]

    def finish(retriever: Retriever, explanations: list[Any]) -> bytes:
        own: Explanation = explanations[0]
        hits = [hit_values(hit, body.show) for hit in own.result]
        return to_json({**_state(served, retriever), "hits": hits, "explanation": own.to_dict()})

    # Each alone, so that those who search need not wait for several explanations.
    job = Job(object(), texts, compute, finish, shelf.deadline(body.timeout))
    return _json(await _unless_left(request, served.submit(job)))


@router.post("/v1/answer", responses={200: {"model": bodies.AnswersAnswer}, **ASKED}, tags=["search"])
async def answer(body: bodies.AnswerRequest, request: Request, shelf: Shelved) -> Response:
    """Answer questions, with a retriever that reads what it finds."""
    served = shelf.ready(body.retriever)
    texts = questions_of(shelf.texts(body.question, body.questions, "question"))
    if not isinstance(served.retriever, Asks):
        problem = f"{served.name} is {an(served.retriever.kind)} retriever, which finds documents and does not answer"
        able = [name for name, other in shelf.served.items() if other.is_ready and isinstance(other.retriever, Asks)]
        raise Refusal("cannot_answer", problem, f"ask {able[0]}" if able else "serve a reatt or an answerer")
    request.state.queries = texts
    where = _where(body.where)

    def compute(retriever: Retriever, texts: Sequence[str]) -> list[Any]:
        return cast(Asks, retriever).ask_many(texts, where=where, matches=body.matches)

    def finish(retriever: Retriever, answers: list[Any]) -> bytes:
        given = answers if body.known_from is None else [own.given_from(body.known_from) for own in answers]
        return to_json({**_state(served, retriever), "answers": [own.to_dict() for own in given]})

    kind = "answer", body.matches, Filter.of(where or {}).mark
    job = Job(kind, texts, compute, finish, shelf.deadline(body.timeout))
    return _json(await _unless_left(request, served.submit(job)))


def _search_job(shelf: Shelf, texts: list[str], body: Any, finish: Any) -> Job[Any]:
    """A search; those for as many hits with the same filter are computed together."""
    where, k = _where(body.where), body.k
    kind = "search", k, Filter.of(where or {}).mark
    return Job(
        kind,
        texts,
        lambda retriever, together: retriever.search_many(together, k, where=where),
        finish,
        shelf.deadline(body.timeout),
    )


def _where(where: dict[str, Any] | None) -> dict[str, Any] | None:
    """A filter, if there is one; a slip in it is named before anybody waits."""
    Filter.of(table(where or {}, "where", '{"year": ">=2020"}'))
    return where or None


def _state(served: Served, retriever: Retriever) -> dict[str, Any]:
    """Who has answered, with which documents."""
    return {"retriever": served.name, "snapshot": retriever.fingerprint[:SNAPSHOT]}


async def _unless_left(request: Request, outcome: Awaitable[T]) -> T:
    """What is awaited; if the client leaves before, it is cancelled."""
    answered, left = asyncio.ensure_future(outcome), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({answered, left}, return_when=asyncio.FIRST_COMPLETED)
        if answered.done():
            return answered.result()
        raise Refusal("client_left", "the client has left", "nobody reads this")
    finally:
        answered.cancel()
        left.cancel()


async def _left(request: Request) -> None:
    """Wait until the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


# Documents


@router.get(
    "/v1/documents",
    responses={200: {"model": bodies.DocumentsAnswer}, **errors("unknown_document", "loading", "unavailable")},
    tags=["documents"],
)
async def get_documents(shelf: Shelved, ids: Ids, retriever: RetrieverName = None) -> Response:
    """Look up documents by their ids; 404 if there is none of them."""
    served = shelf.ready(retriever)
    held = served.retriever
    store = held.documents
    asked = dict.fromkeys(map(normalise, ids))
    known = [document_values(store.document(key)) for key in asked if key in store]
    missing = [key for key in asked if key not in store]
    if not known:
        raise _unknown(missing[0])
    return _json(to_json({**_state(served, held), "documents": known, "missing": missing}))


@router.post(
    "/v1/documents",
    responses={200: {"model": bodies.ChangeAnswer}, **CHANGED, **errors("already_there", "not_saved")},
    tags=["documents"],
)
async def add_documents(body: bodies.WriteRequest, shelf: Shelved, _key: Key) -> Response:
    """Add documents; if one has the id of another, none is added."""
    new = _documents(body)

    def change(retriever: Retriever) -> dict[str, int]:
        for document in new:
            if document.id in retriever.documents:
                problem = f"a document with id {document.id!r:.80} is there already"
                raise Refusal("already_there", problem, "replace it with PUT, or delete it first")
        retriever.add(new)
        return {"added": len(new), "documents": len(retriever)}

    return await _changed(shelf.ready(body.retriever), change)


@router.put("/v1/documents", responses={200: {"model": bodies.ChangeAnswer}, **CHANGED}, tags=["documents"])
async def replace_documents(body: bodies.WriteRequest, shelf: Shelved, _key: Key) -> Response:
    """Add documents, and put those whose ids are there already in the place of the old ones."""
    new = _documents(body)

    def change(retriever: Retriever) -> dict[str, int]:
        plan = Plan.of(retriever.documents, new, deletes=False)
        plan.carry_out(retriever)
        counts = {"added": len(plan.added), "replaced": len(plan.replaced), "unchanged": plan.unchanged}
        return {**counts, "documents": len(retriever)}

    return await _changed(shelf.ready(body.retriever), change)


@router.delete(
    "/v1/documents",
    responses={200: {"model": bodies.ChangeAnswer}, **CHANGED, **errors("unknown_document", "unknown_retriever")},
    tags=["documents"],
)
async def delete_documents(shelf: Shelved, _key: Key, ids: Ids, retriever: RetrieverName = None) -> Response:
    """Delete documents by their ids; if one of them is not there, none is deleted."""
    gone = [*dict.fromkeys(map(normalise, ids))]

    def change(held: Retriever) -> dict[str, int]:
        for key in gone:
            if key not in held.documents:
                raise _unknown(key)
        held.delete(gone)
        return {"deleted": len(gone), "documents": len(held)}

    return await _changed(shelf.ready(retriever), change)


def _documents(body: bodies.WriteRequest) -> list[Document]:
    for document in body.documents:
        check_finite(document.metadata)
    new = [Document(one.id, one.text, one.title, tuple(one.expansions), one.metadata) for one in body.documents]
    ids = [document.id for document in new]
    if len({*ids}) < len(ids):
        twice = next(key for at, key in enumerate(ids) if key in ids[:at])
        raise UsageError(f"two documents have the id {twice!r:.80}", "give every document its own id")
    return new


async def _changed(served: Served, change: Any) -> Response:
    # Whoever leaves meanwhile does not stop a change: it is done whole, or not at all.
    counts = await asyncio.shield(served.change(change))
    zero = dict.fromkeys(("added", "replaced", "deleted", "unchanged"), 0)
    saved = served.source.folder is not None
    return _json(to_json({"retriever": served.name, **zero, **counts, "saved": saved}))


def _unknown(key: str) -> Refusal:
    return Refusal("unknown_document", f"there is no document with id {key!r:.80}", "check the id")


# About the server


@router.get(
    "/v1/retrievers",
    responses={200: {"model": bodies.RetrieversAnswer}, **errors()},
    tags=["about"],
)
async def list_retrievers(shelf: Shelved) -> Response:
    """What is served: kinds, documents, bytes, options, and how each was made."""
    return _json(to_json({"retrievers": [_about(shelf, served) for served in shelf.served.values()]}))


@router.get(
    "/v1/retrievers/{name:path}",
    responses={200: {"model": bodies.RetrieverAnswer}, **errors("unknown_retriever")},
    tags=["about"],
)
async def one_retriever(name: str, shelf: Shelved) -> Response:
    """What one retriever is."""
    return _json(to_json(_about(shelf, shelf.find(name))))


def _about(shelf: Shelf, served: Served) -> dict[str, Any]:
    saved = served.source.folder is not None
    writable = bool(shelf.options.key) and (saved or shelf.options.workers == 1)
    return {"name": served.name, "state": served.state, "writable": writable, "saved": saved, **served.about}


@router.get("/healthz", responses={200: {"model": bodies.HealthAnswer}, **errors()}, tags=["about"])
async def health() -> Response:
    """Whether the server runs."""
    return _json(to_json({"status": "ok"}))


@router.get(
    "/readyz",
    responses={200: {"model": bodies.HealthAnswer}, **errors("loading", "unavailable")},
    tags=["about"],
)
async def readiness(shelf: Shelved) -> Response:
    """Whether every retriever can be searched."""
    for served in shelf.served.values():
        if not served.is_ready:
            raise not_ready(served)
    return _json(to_json({"status": "ready"}))


@router.get(
    "/metrics",
    responses={200: {"content": {"text/plain": {}}, "description": "Numbers for Prometheus."}, **errors()},
    response_class=Response,
    tags=["about"],
)
async def metrics(shelf: Shelved) -> Response:
    """Numbers for Prometheus."""
    for name, served in shelf.served.items():
        shelf.metrics.waiting.labels(name).set(served.waiting)
    return Response(shelf.metrics.text(), media_type=Metrics.content_type)


async def front_page(shelf: Shelved) -> Response:
    """The page."""
    if (front.PAGE / "index.html").is_file():
        return FileResponse(front.PAGE / "index.html")
    rows = [(name, _summary(served)) for name, served in shelf.served.items()]
    return HTMLResponse(front.plain_page(rows))


def _summary(served: Served) -> str:
    about = served.about
    return f"{about['kind']}, {about['documents']:,} documents" if about else served.state


# The application


def create_app(retrievers: Mapping[str, Retriever | str | Path], options: ServeOptions) -> FastAPI:
    """The server of these retrievers, as an ASGI application."""
    return app_of({name: Source.of(retriever) for name, retriever in _checked(retrievers).items()}, options)


def app_of(sources: Mapping[str, Source], options: ServeOptions) -> FastAPI:
    """The server of retrievers that are loaded once it runs."""
    shelf = Shelf(sources, options)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        async with shelf.open():
            yield

    # The usual pages of documentation load scripts from elsewhere, which the policy for content forbids.
    app = FastAPI(
        title="Triever",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.shelf = shelf
    for routes in (docid_routes.router, result_routes.router, router):  # the path of docids before that of any name
        app.include_router(routes)
    app.add_api_route("/", front_page, include_in_schema=False)
    if (front.PAGE / "assets").is_dir():
        app.mount("/assets", StaticFiles(directory=front.PAGE / "assets"))
    _add_handlers(app)
    if options.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(options.origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(Guard, options=options, metrics=shelf.metrics)  # the last one is the outermost
    return app


def _checked(retrievers: Mapping[str, Any]) -> Mapping[str, Any]:
    """The retrievers, if they are what can be served."""
    table(retrievers, "retrievers", '{"mine": "models/mine"}')
    if not retrievers:
        raise UsageError("there is nothing to serve", 'give retrievers by name: create_app({"mine": "models/mine"})')
    for name, retriever in retrievers.items():
        if not isinstance(name, str) or not name.strip():
            raise UsageError(f"{name!r:.80} is no name for a retriever", "give a text")
        if not isinstance(retriever, Retriever | str | Path):
            problem = f"{name} is {retriever!r:.80}, not a retriever"
            raise UsageError(problem, "give a fitted or loaded retriever, or a saved folder")
        if isinstance(retriever, Retriever) and not retriever.is_fitted:
            raise UsageError(f"{name} has no documents yet", "call fit, or load a saved one")
    return retrievers


def _add_handlers(app: FastAPI) -> None:
    """Turn every error into a body of code, message and hint."""

    async def refused(_request: Request, error: Exception) -> Response:
        return of_http(cast(HTTPException, error)).response()

    async def invalid(_request: Request, error: Exception) -> Response:
        return of_validation(cast(RequestValidationError, error).errors()).response()

    async def known(request: Request, error: Exception) -> Response:
        refusal = of_error(error)
        if refusal.code in LOGGED:
            _log.error("%s %s: %s", request.method, request.url.path, error)
        return refusal.response()

    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    for kind in (TrieverError, QueueFull, DeadlinePassed, NotSaved):
        app.add_exception_handler(kind, known)
