"""The MCP server, asked by MCP's own client: in this process, as a process of its own, and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

WHY = "the MCP server is tested where mcp is installed: make test-all"
mcp = pytest.importorskip("mcp", reason=WHY)
pytest.importorskip("mcp.server.mcpserver", reason=f"{WHY}, version 2 at least")

from tests.integrations.shared import QUESTION, bm25, every_source  # noqa: E402
from tests.retrievers.contract import DOCUMENTS  # noqa: E402
from triever import BM25, UsageError  # noqa: E402
from triever.data.records import Answer, Source  # noqa: E402
from triever.integrations.mcp import create_app, create_server  # noqa: E402

pytestmark = pytest.mark.long


class Answering(BM25):
    """BM25 that answers every question with the id of its first hit."""

    def ask_many(
        self, questions: list[str], *, where: Mapping[str, object] | None = None, matches: bool = True
    ) -> list[Answer]:
        results = self.search_many(questions, 1, where=where)
        return [
            Answer(question, result[0].id, 0.5, result[0].id, (Source(result[0], 1.0),))
            for question, result in zip(questions, results, strict=True)
        ]


def answering() -> BM25:
    from tests.retrievers.contract import dataset

    return Answering().fit(dataset())


def called(server: Any, tool: str, **values: Any) -> Any:
    """What a tool says, through a client."""

    async def call() -> Any:
        async with mcp.Client(server) as client:
            return await client.call_tool(tool, values)

    return asyncio.run(call())


def tools_of(server: Any) -> list[Any]:
    async def listed() -> Any:
        async with mcp.Client(server) as client:
            return (await client.list_tools()).tools

    return asyncio.run(listed())


def test_tools_are_those_that_the_retrievers_can_serve() -> None:
    plain, both = create_server({"a": bm25()}), create_server({"a": bm25(), "b": answering()})
    assert [tool.name for tool in tools_of(plain)] == ["search", "explain", "get_document"]
    assert [tool.name for tool in tools_of(both)] == ["search", "explain", "get_document", "ask"]
    for tool in tools_of(both):
        assert tool.annotations.read_only_hint
        assert tool.description
        assert all(part.get("description") for part in tool.input_schema["properties"].values())


def test_a_search_is_the_retriever_s_from_every_source(tmp_path: Path) -> None:
    result = bm25().search(QUESTION, 3)
    with every_source(tmp_path) as sources:
        server = create_server(sources)
        for name in sources:
            answer = called(server, "search", query=QUESTION, k=3, retriever=name)
            hits = answer.structured_content["hits"]
            assert [(hit["id"], hit["score"]) for hit in hits] == [(hit.id, hit.score) for hit in result], name
            assert [hit["snippet"]["text"] for hit in hits] == [str(hit.snippet) for hit in result]
            told = called(server, "explain", query=QUESTION, k=3, retriever=name).structured_content
            assert told == bm25().explain(QUESTION, 3).to_dict()
            document = called(server, "get_document", document_id="größe", retriever=name).structured_content
            assert document["text"] == next(one.text for one in DOCUMENTS if one.id == "größe")


def test_a_filter_is_a_search_s_filter() -> None:
    answer = called(create_server({"a": bm25()}), "search", query=QUESTION, where={"name": "coffee"})
    assert [hit["id"] for hit in answer.structured_content["hits"]] == ["coffee"]


def test_a_question_goes_to_a_retriever_that_answers() -> None:
    server = create_server({"a": bm25(), "b": answering()})
    answer = called(server, "ask", question=QUESTION)
    assert answer.structured_content["answer"] == "tea"
    assert answer.structured_content["sources"][0]["title"] == "How to brew tea"
    assert "does not answer; use the tool search" in called(server, "ask", question="x", retriever="a").content[0].text


@pytest.mark.parametrize(
    ("tool", "values", "said"),
    [
        ("search", {"query": "x", "retriever": "hand"}, "there is no retriever named 'hand'; did you mean handbook?"),
        ("search", {"query": "x", "k": 0}, "greater than or equal to 1"),
        ("search", {"query": "x", "where": {"colour": "red"}}, "colour"),
        ("get_document", {"document_id": "nobody"}, "nobody"),
    ],
)
def test_a_mistake_is_told_to_the_model(tool: str, values: dict[str, Any], said: str) -> None:
    answer = called(create_server({"handbook": bm25()}), tool, **values)
    assert answer.is_error
    assert said in answer.content[0].text


def test_nothing_to_search_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing to search"):
        create_server({})


def test_the_command_speaks_over_standard_input_and_output(tmp_path: Path) -> None:
    bm25().save(tmp_path / "handbook")
    words = ["-m", "triever.cli", "mcp", str(tmp_path / "handbook")]
    server = mcp.StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    answer = called(server, "search", query=QUESTION, k=1, retriever="handbook")
    assert [hit["id"] for hit in answer.structured_content["hits"]] == ["tea"]


def test_the_application_can_be_mounted() -> None:
    """The example of docs/integrations.md, behind a real server."""
    import threading

    import uvicorn
    from fastapi import FastAPI

    from tests.serve.running import until

    tools = create_app({"handbook": bm25()}, path="/")

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> Any:
        async with tools.router.lifespan_context(tools):
            yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/tools", tools)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        answer = called(f"http://127.0.0.1:{port}/tools/", "search", query=QUESTION, k=1)
        assert [hit["id"] for hit in answer.structured_content["hits"]] == ["tea"]
    finally:
        server.should_exit = True
        thread.join()
