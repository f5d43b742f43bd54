"""The route by which measured results are shown."""

from __future__ import annotations

import logging

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

import triever.serve.bodies as bodies
from triever.errors import DataError
from triever.serve.answers import to_json
from triever.serve.refusals import Refusal
from triever.serve.result_tables import result_tables
from triever.serve.shelf import Shelved, errors

_log = logging.getLogger("triever.serve")
router = APIRouter()


@router.get("/v1/results", responses={200: {"model": bodies.ResultsAnswer}, **errors("unavailable")}, tags=["about"])
async def list_results(shelf: Shelved) -> Response:
    """The tables of the folder of results that the server was started with; none where it has no such folder."""
    folder = shelf.options.results
    try:
        tables = await run_in_threadpool(result_tables, folder) if folder else []
    except (DataError, OSError) as error:  # which name files of the server
        _log.error("the results cannot be read: %s", error)
        raise Refusal("unavailable", "the results cannot be read", "the server's log says why") from error
    return Response(to_json({"given": bool(folder), "tables": tables}), media_type="application/json")
