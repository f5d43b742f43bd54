"""The retriever for LangChain: LangChain's own tests of retrievers, and ours for what it carries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

WHY = "the adapter for LangChain is tested where that is installed: make test-all"
pytest.importorskip("langchain_core", reason=WHY)
suite = pytest.importorskip("langchain_tests.integration_tests", reason=WHY)

from tests.integrations.shared import QUESTION, bm25, every_source, loop_stays_free, slow  # noqa: E402
from tests.retrievers.contract import DOCUMENTS  # noqa: E402
from triever import UsageError  # noqa: E402
from triever.integrations.langchain import TrieverRetriever  # noqa: E402

pytestmark = pytest.mark.long


@pytest.mark.asyncio
class TestLangChainsOwn(suite.RetrieversIntegrationTests):
    """What LangChain asks of every retriever."""

    @property
    def retriever_constructor(self) -> type[TrieverRetriever]:
        return TrieverRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"source": bm25()}

    @property
    def retriever_query_example(self) -> str:
        return "the water of the king"


def test_documents_are_the_hits_from_every_source(tmp_path: Path) -> None:
    result = bm25().search(QUESTION, 3)
    texts = {document.id: document.text for document in DOCUMENTS}
    with every_source(tmp_path) as sources:
        for name, source in sources.items():
            documents = TrieverRetriever(source=source, k=3).invoke(QUESTION)
            assert [(one.id, one.metadata["score"]) for one in documents] == [(hit.id, hit.score) for hit in result]
            assert [one.page_content for one in documents] == [texts[hit.id] for hit in result], name
            assert documents[0].metadata["title"] == "How to brew tea"
            assert documents[0].metadata["words"] == 10


def test_a_filter_is_a_search_s_filter() -> None:
    only = {"name": "coffee"}
    assert [one.id for one in TrieverRetriever(source=bm25(), where=only).invoke(QUESTION)] == ["coffee"]
    assert [one.id for one in TrieverRetriever(source=bm25()).invoke(QUESTION, where=only)] == ["coffee"]


def test_the_loop_goes_on_during_a_search() -> None:
    retriever = slow()
    adapter = TrieverRetriever(source=retriever)
    documents = loop_stays_free(retriever, lambda: adapter.ainvoke(QUESTION, k=1))
    assert [one.id for one in documents] == ["tea"]


def test_it_is_a_part_of_a_chain() -> None:
    """The example of docs/integrations.md."""
    from langchain_core.language_models import FakeListChatModel
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.runnables import RunnablePassthrough

    def joined(documents: list[Any]) -> str:
        return "\n\n".join(document.page_content for document in documents)

    retriever = TrieverRetriever(source=bm25(), k=2)
    prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}")
    model = FakeListChatModel(responses=["Four minutes."])
    before = {"context": retriever | joined, "question": RunnablePassthrough()} | prompt
    assert "wait four minutes" in before.invoke(QUESTION).to_string()
    assert (before | model).invoke(QUESTION).content == "Four minutes."


def test_what_cannot_be_searched_is_refused() -> None:
    from triever import BM25

    with pytest.raises(UsageError, match="cannot be searched"):
        TrieverRetriever(source=5)
    with pytest.raises(UsageError, match="no documents yet"):
        TrieverRetriever(source=BM25())
