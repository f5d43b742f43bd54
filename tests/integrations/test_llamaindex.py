"""The retriever for LlamaIndex."""

from __future__ import annotations

from pathlib import Path

import pytest

WHY = "the adapter for LlamaIndex is tested where that is installed: make test-all"
pytest.importorskip("llama_index.core", reason=WHY)

from llama_index.core.llms import MockLLM  # noqa: E402
from llama_index.core.query_engine import RetrieverQueryEngine  # noqa: E402
from llama_index.core.schema import MetadataMode  # noqa: E402

from tests.integrations.shared import QUESTION, bm25, every_source, loop_stays_free, slow  # noqa: E402
from tests.retrievers.contract import DOCUMENTS  # noqa: E402
from triever.integrations.llamaindex import TrieverRetriever  # noqa: E402

pytestmark = pytest.mark.long


def test_nodes_are_the_hits_from_every_source(tmp_path: Path) -> None:
    result = bm25().search(QUESTION, 3)
    texts = {document.id: document.text for document in DOCUMENTS}
    with every_source(tmp_path) as sources:
        for name, source in sources.items():
            nodes = TrieverRetriever(source, 3).retrieve(QUESTION)
            assert [(one.node.node_id, one.score) for one in nodes] == [(hit.id, hit.score) for hit in result], name
            assert [one.text for one in nodes] == [texts[hit.id] for hit in result]
            assert nodes[0].metadata["title"] == "How to brew tea"


def test_a_language_model_reads_title_and_metadata_and_no_scores() -> None:
    [node] = TrieverRetriever(bm25(), 1).retrieve(QUESTION)
    read = node.node.get_content(MetadataMode.LLM)
    assert "title: How to brew tea" in read
    assert "words: 10" in read
    assert "score" not in read


def test_a_filter_is_a_search_s_filter() -> None:
    nodes = TrieverRetriever(bm25(), where={"name": "coffee"}).retrieve(QUESTION)
    assert [one.node.node_id for one in nodes] == ["coffee"]


def test_the_loop_goes_on_during_a_search() -> None:
    retriever = slow()
    nodes = loop_stays_free(retriever, lambda: TrieverRetriever(retriever, 1).aretrieve(QUESTION))
    assert [one.node.node_id for one in nodes] == ["tea"]


def test_it_is_a_part_of_a_query_engine() -> None:
    """The example of docs/integrations.md."""
    engine = RetrieverQueryEngine.from_args(TrieverRetriever(bm25(), 2), llm=MockLLM())
    answer = engine.query(QUESTION)
    assert [one.node.node_id for one in answer.source_nodes] == ["tea", "coffee"]
    assert "wait four minutes" in answer.response  # the model says what it has read
