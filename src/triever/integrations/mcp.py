"""An MCP server: tools by which a language model searches documents, reads them and asks about them.

`triever mcp MODEL...` runs it for one client, over standard input and output. `create_app` is the same over HTTP, as an
application that another one can mount. Nothing can be changed by it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from triever.errors import TrieverError, UsageError, nearest, needed_for
from triever.integrations.sources import Source, opened, with_documents
from triever.remote import Searcher, document_values
from triever.retriever import Asks
from triever.serve.answers import result_values, to_json
from triever.version import __version__

with needed_for("the adapter for MCP", "pip install 'triever[mcp]'"):
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations
    from pydantic import Field
    from starlette.applications import Starlette

MOST = 100
"""Hits that one call may ask for: whoever reads them is a language model."""
Name = Annotated[str, Field(description="Which collection of documents; the first one, if it is left out.")]
Query = Annotated[str, Field(description="The question, or words to search for.")]
Hits = Annotated[int, Field(description="How many documents to find.", ge=1, le=MOST)]
Where = Annotated[
    dict[str, Any] | None,
    Field(description='Find only documents with this metadata, such as {"year": ">=2020", "lang": ["de", "fr"]}.'),
]


def create_server(retrievers: Mapping[str, Source]) -> MCPServer:
    """The MCP server of these retrievers by name: each is a retriever, a saved folder or the address of a server."""
    if not retrievers:
        raise UsageError("there is nothing to search", 'give retrievers by name: {"mine": "models/mine"}')
    tools = Tools({name: opened(source) for name, source in retrievers.items()})
    about = f"Tools to search collections of documents: {', '.join(retrievers)}. Cite documents by their ids."
    server = MCPServer("triever", instructions=about, version=__version__, log_level="WARNING")
    for tool in tools.usable():
        server.add_tool(tool, annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    return server


def create_app(retrievers: Mapping[str, Source], *, path: str = "/mcp", host: str = "127.0.0.1") -> Starlette:
    """The same over HTTP, as a Starlette application; its lifespan has to run where it is mounted.

    Requests that name another host than this one are refused, as MCP wants it for servers on one's own machine.
    """
    return create_server(retrievers).streamable_http_app(
        streamable_http_path=path, stateless_http=True, json_response=True, host=host
    )


class Tools:
    """The tools; each returns plain values, and a mistake is told to the model in one sentence."""

    def __init__(self, searchers: Mapping[str, Searcher]) -> None:
        self._searchers = dict(searchers)

    def usable(self) -> list[Callable[..., dict[str, Any]]]:
        """The tools that these retrievers can serve: none asks where no retriever answers."""
        answers = any(isinstance(searcher, Asks) for searcher in self._searchers.values())
        return [self.search, self.explain, self.get_document, *([self.ask] if answers else [])]

    def search(self, query: Query, k: Hits = 5, where: Where = None, retriever: Name = "") -> dict[str, Any]:
        """Search documents; for each hit its id, title, metadata, score, and the sentences that fit the query best."""
        with _told():
            searcher = self._find(retriever)
            result = searcher.search(query, k, where=where)
            with_documents(searcher, result)
            return _plain(result_values(result, query, "snippet"))

    def explain(self, query: Query, k: Hits = 5, where: Where = None, retriever: Name = "") -> dict[str, Any]:
        """Search, and say what each score is made of."""
        with _told():
            return _plain(self._find(retriever).explain(query, k, where=where).to_dict())

    def get_document(
        self, document_id: Annotated[str, Field(description="The id, as a hit has it.")], retriever: Name = ""
    ) -> dict[str, Any]:
        """Read a whole document."""
        with _told():
            return _plain(document_values(self._find(retriever).documents.document(document_id)))

    def ask(self, question: Query, where: Where = None, retriever: Name = "") -> dict[str, Any]:
        """Answer a question from documents, and say from which; the answer is null where it is not known."""
        with _told():
            searcher = self._find(retriever or self._first_that_answers())
            if not isinstance(searcher, Asks):
                raise UsageError(f"{retriever} finds documents and does not answer", "use the tool search")
            return _plain(searcher.ask_many([question], where=where)[0].to_dict())

    def _find(self, name: str) -> Searcher:
        name = name or next(iter(self._searchers))
        if name not in self._searchers:
            raise UsageError(f"there is no retriever named {name!r}", nearest(name, self._searchers))
        return self._searchers[name]

    def _first_that_answers(self) -> str:
        return next((name for name, searcher in self._searchers.items() if isinstance(searcher, Asks)), "")


@contextmanager
def _told() -> Generator[None]:
    """Inside of the block, errors that a caller can do something about become those of a tool."""
    try:
        yield
    except TrieverError as error:
        raise ToolError(str(error)) from error


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON has them."""
    return json.loads(to_json(values))
