"""The route by which the docids of a retriever are browsed, prefix by prefix."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

import triever.serve.bodies as bodies
from triever.serve.answers import to_json
from triever.serve.shelf import SNAPSHOT, Shelved, errors

DEEPEST = 1000
"""Symbols of a prefix at most."""
WIDEST = 1000
"""Branches of one answer at most; the others are further pages."""
SAMPLES = 20
"""Documents at most that are named for a branch."""
router = APIRouter()

Prefix = Annotated[list[int] | None, Query(max_length=DEEPEST, description="The first symbols, by their numbers.")]
Offset = Annotated[int, Query(ge=0, le=2**31 - 1, description="How many branches to leave out at first.")]
Limit = Annotated[int, Query(ge=1, le=WIDEST, description="How many branches to show at most.")]
Samples = Annotated[int, Query(ge=0, le=SAMPLES, description="How many documents to name for each branch.")]


@router.get(
    "/v1/retrievers/{name:path}/docids",
    responses={200: {"model": bodies.DocidsAnswer}, **errors("unknown_retriever", "loading", "unavailable")},
    tags=["about"],
)
async def browse_docids(
    name: str, shelf: Shelved, prefix: Prefix = None, offset: Offset = 0, limit: Limit = 100, samples: Samples = 3
) -> Response:
    """The symbols that may follow a prefix of docids, and the documents below each."""
    served = shelf.ready(name)
    retriever = served.retriever

    def browse() -> bytes:
        node = retriever.browse(prefix or (), samples=samples, offset=offset, limit=limit)
        state = {"retriever": served.name, "snapshot": retriever.fingerprint[:SNAPSHOT]}
        return to_json({**state, **node.to_dict()})

    return Response(await run_in_threadpool(browse), media_type="application/json")
