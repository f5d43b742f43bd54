"""The component for Haystack, in pipelines, saved and loaded; and nothing is reported to anybody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WHY = "the adapter for Haystack is tested where that is installed: make test-all"
pytest.importorskip("haystack", reason=WHY)

from tests.integrations.shared import QUESTION, bm25, every_source, loop_stays_free, slow  # noqa: E402
from tests.retrievers.contract import DOCUMENTS  # noqa: E402
from triever import UsageError  # noqa: E402
from triever.integrations.haystack import TrieverRetriever  # noqa: E402

pytestmark = pytest.mark.long


def test_documents_are_the_hits_from_every_source(tmp_path: Path) -> None:
    result = bm25().search(QUESTION, 3)
    texts = {document.id: document.text for document in DOCUMENTS}
    with every_source(tmp_path) as sources:
        for name, source in sources.items():
            documents = TrieverRetriever(source, top_k=3).run(query=QUESTION)["documents"]
            assert [(one.id, one.score) for one in documents] == [(hit.id, hit.score) for hit in result], name
            assert [one.content for one in documents] == [texts[hit.id] for hit in result]
            assert documents[0].meta["title"] == "How to brew tea"


def test_what_is_asked_for_goes_before_what_was_set() -> None:
    component = TrieverRetriever(bm25(), top_k=3)
    assert len(component.run(query=QUESTION, top_k=1)["documents"]) == 1
    only = component.run(query=QUESTION, where={"name": "coffee"})["documents"]
    assert [one.id for one in only] == ["coffee"]


def test_a_pipeline_is_saved_and_loaded(tmp_path: Path) -> None:
    """The example of docs/integrations.md."""
    from haystack import Pipeline
    from haystack.components.builders import PromptBuilder
    from haystack.core.errors import DeserializationError

    bm25().save(tmp_path / "handbook")
    pipeline = Pipeline()
    pipeline.add_component("retriever", TrieverRetriever(tmp_path / "handbook", top_k=2))
    template = "{% for document in documents %}{{ document.content }}\n{% endfor %}{{ question }}"
    pipeline.add_component("prompt", PromptBuilder(template, required_variables="*"))
    pipeline.connect("retriever.documents", "prompt.documents")
    asked = {"retriever": {"query": QUESTION}, "prompt": {"question": QUESTION}}
    said = pipeline.run(asked)["prompt"]["prompt"]
    assert "wait four minutes" in said
    with pytest.raises(DeserializationError):  # whoever loads a pipeline says which modules it may name
        Pipeline.loads(pipeline.dumps())
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["triever.integrations.haystack"])
    assert again.to_dict() == pipeline.to_dict()
    assert again.run(asked)["prompt"]["prompt"] == said


def test_a_component_survives_being_written(tmp_path: Path) -> None:
    with every_source(tmp_path) as sources:
        del sources["retriever"]
        for source in sources.values():
            component = TrieverRetriever(source, top_k=2, where={"name": ["tea", "bike"]})
            again = TrieverRetriever.from_dict(component.to_dict())
            assert again.to_dict() == component.to_dict()
            assert [one.id for one in again.run(query=QUESTION)["documents"]] == ["tea"]


def test_a_retriever_in_memory_cannot_be_saved_with_a_pipeline() -> None:
    with pytest.raises(UsageError, match="save it, and give the component its folder"):
        TrieverRetriever(bm25()).to_dict()


def test_the_loop_goes_on_during_a_search() -> None:
    retriever = slow()
    component = TrieverRetriever(retriever, top_k=1)
    [document] = loop_stays_free(retriever, lambda: component.run_async(query=QUESTION))["documents"]
    assert document.id == "tea"


OURS = "import triever.integrations.haystack\n"
RUN = """
import posthog
from haystack import Pipeline, component
sent = []
posthog.Posthog.capture = posthog.capture = lambda *arguments, **named: sent.append(arguments)

@component
class Echo:
    @component.output_types(said=str)
    def run(self, word: str):
        return {"said": word}

pipeline = Pipeline()
pipeline.add_component("echo", Echo())
assert pipeline.run({"echo": {"word": "x"}}) == {"echo": {"said": "x"}}
print(len(sent))
"""


@pytest.mark.parametrize(
    ("imports", "reports"),
    [("", 1), (OURS, 0), ("import haystack.telemetry\n" + OURS, 0), ("from haystack import Pipeline\n" + OURS, 0)],
    ids=["without the adapter", "adapter alone", "adapter last", "adapter after the pipeline"],
)
def test_nothing_is_reported(imports: str, reports: int, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "HAYSTACK_TELEMETRY_ENABLED"}
    environment["HOME"] = str(tmp_path)  # where Haystack would note who it reports for
    words = [sys.executable, "-c", imports + RUN]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"{reports}\n", done.stderr
