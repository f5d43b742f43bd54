"""What requests and answers look like: pydantic checks requests, and the OpenAPI document is made of these classes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from triever.serve.answers import Show

EXAMPLE_HIT: dict[str, Any] = {
    "id": "heapq.merge",
    "score": 8.209,
    "title": "heapq.merge",
    "metadata": {"kind": "function"},
    "snippet": {"text": "Merge multiple sorted inputs into a single sorted output.", "start": 52, "matches": [[0, 5]]},
}


class Request(BaseModel):
    """A request; a field that nobody knows is refused, since it is mostly a slip."""

    model_config = ConfigDict(extra="forbid", strict=True)


Retriever = Annotated[str | None, Field(description="The name of a retriever; without one, the first.")]
Hits = Annotated[int, Field(ge=1, le=2**31 - 1, description="How many documents to find for a query.")]
Where = Annotated[
    dict[str, Any] | None,
    Field(description='Only documents with this metadata: {"year": ">=2020", "lang": ["de", "fr"]}.'),
]
ShowField = Annotated[
    Show, Field(description="What hits carry: ids and scores, also title, metadata and a snippet, or the text too.")
]
Timeout = Annotated[
    float | None,
    Field(gt=0, allow_inf_nan=False, description="Seconds to wait; the server's own deadline is an upper limit."),
]


class HitsRequest(Request):
    """A request for hits."""

    k: Hits = 10
    where: Where = None
    show: ShowField = "snippet"
    timeout: Timeout = None


class SearchRequest(HitsRequest):
    """One query, or many."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"query": "merge several sorted lists into one", "k": 3},
                {"retriever": "python", "queries": ["open a file", "parse a date"], "show": "ids"},
                {"query": "read a file", "where": {"kind": ["function", "class"]}},
            ]
        }
    )
    retriever: Retriever = None
    query: Annotated[str | None, Field(description="A query; give this, or `queries`.")] = None
    queries: Annotated[list[str] | None, Field(description="Several queries.", min_length=1)] = None


class CompareRequest(HitsRequest):
    """One query for several retrievers."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "merge several sorted lists", "k": 5}]})
    retrievers: Annotated[
        list[str] | None, Field(description="Names of retrievers; without any, all of them.", min_length=1)
    ] = None
    query: Annotated[str, Field(description="The query.")]


class ExplainRequest(HitsRequest):
    """A query whose hits are explained."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "merge several sorted lists", "k": 1}]})
    retriever: Retriever = None
    query: Annotated[str, Field(description="The query.")]


class AnswerRequest(Request):
    """A question, or many, for a retriever that answers."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"question": "Which company made the lens?"}]})
    retriever: Retriever = None
    question: Annotated[str | None, Field(description="A question; give this, or `questions`.")] = None
    questions: Annotated[list[str] | None, Field(description="Several questions.", min_length=1)] = None
    where: Where = None
    matches: Annotated[bool, Field(description="Say which tokens fit, and which sources hold the answer.")] = True
    known_from: Annotated[
        float | None,
        Field(ge=0, le=1, description="The probability from which answers are given; without one, the model's own."),
    ] = None
    timeout: Timeout = None


class NewDocument(Request):
    """A document."""

    id: Annotated[str, Field(description="Its id.")]
    text: Annotated[str, Field(description="Its text.")]
    title: Annotated[str, Field(description="Its title.")] = ""
    expansions: Annotated[list[str], Field(description="Further texts that stand for it.")] = []
    metadata: Annotated[dict[str, Any], Field(description="What else is known of it.")] = {}


class WriteRequest(Request):
    """Documents to add, or to put in the place of others."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"documents": [{"id": "hr-17", "text": "Travel above 5000 euro needs a signature."}]}]
        }
    )
    retriever: Retriever = None
    documents: Annotated[list[NewDocument], Field(description="The documents.", min_length=1)]


class Answer(BaseModel):
    """What is sent back; further fields may come with later versions."""

    model_config = ConfigDict(extra="allow")


class SnippetAnswer(Answer):
    """The part of a document that says most about the query."""

    text: str
    start: Annotated[int, Field(description="Where it begins in the document's text.")]
    matches: Annotated[list[list[int]], Field(description="Where words of the query begin and end in it.")]


class HitAnswer(Answer):
    """A document that was found."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [EXAMPLE_HIT]})
    id: str
    score: float
    docid: Annotated[str, Field(description="The identifier that a model wrote, for systems that write docids.")] = ""
    logprob: Annotated[float, Field(description="The logarithm of the probability of the document.")] = 0.0
    span: Annotated[list[int], Field(description="Where the passage that matched begins and ends.")] = []
    title: str = ""
    metadata: dict[str, Any] = {}
    snippet: SnippetAnswer | None = None
    text: str = ""


class ResultAnswer(Answer):
    """The hits of one query, best first."""

    query: str
    hits: list[HitAnswer]
    note: str = ""
    certificate: str = ""
    answer: str | None = None
    thought: Annotated[str, Field(description="What a language model wrote before it searched, if it was to.")] = ""


class SearchAnswer(Answer):
    """The hits of every query."""

    retriever: str
    snapshot: Annotated[str, Field(description="Which state of its documents was searched.")]
    results: list[ResultAnswer]


class ComparedAnswer(ResultAnswer):
    """The hits of one retriever."""

    retriever: str
    snapshot: str


class CompareAnswer(Answer):
    """The hits of each retriever."""

    query: str
    results: list[ComparedAnswer]


class ExplainAnswer(Answer):
    """The hits, and why they came: `explanation` is whatever the retriever tells."""

    retriever: str
    snapshot: str
    hits: list[HitAnswer]
    explanation: dict[str, Any]


class QuestionAnswer(Answer):
    """The answer to a question, and what it was written from."""

    question: str
    answer: Annotated[str | None, Field(description="Nothing where the model does not know.")]
    probability: float
    written: str
    sources: list[dict[str, Any]]
    note: Annotated[str, Field(description="What the search says, such as why it found nothing to read.")] = ""


class AnswersAnswer(Answer):
    """The answer to every question."""

    retriever: str
    snapshot: str
    answers: list[QuestionAnswer]


class DocumentAnswer(Answer):
    """A document."""

    id: str
    title: str
    text: str
    expansions: list[str]
    metadata: dict[str, Any]


class DocumentsAnswer(Answer):
    """Documents by id, and the ids that no document has."""

    retriever: str
    snapshot: str
    documents: list[DocumentAnswer]
    missing: list[str]


class ChangeAnswer(Answer):
    """What was changed, and how many documents there are now."""

    retriever: str
    added: int
    replaced: int
    deleted: int
    unchanged: int
    documents: int
    saved: Annotated[bool, Field(description="Whether the change is on disk; else it ends with the server.")]


class RetrieverAnswer(Answer):
    """What a retriever is; once it is loaded, also its kind, documents, bytes, options, and how it was made."""

    name: str
    state: str
    writable: bool


class RetrieversAnswer(Answer):
    """All retrievers; the first is the one that answers where none is named."""

    retrievers: list[RetrieverAnswer]


class DocidsAnswer(Answer):
    """A prefix of docids, and the symbols that may follow it."""

    retriever: str
    snapshot: str
    prefix: list[int]
    symbols: Annotated[list[str], Field(description="The same as texts.")]
    docid: Annotated[str, Field(description="All of it as one text.")]
    documents: Annotated[int, Field(description="How many documents have a docid that begins so.")]
    ends: Annotated[bool, Field(description="Whether it is a whole docid.")]
    samples: list[dict[str, str]]
    branches: Annotated[list[dict[str, Any]], Field(description="Symbols that may follow, from the offset on.")]
    total: Annotated[int, Field(description="How many branches there are.")]
    offset: int


class ResultTable(Answer):
    """What was measured: a row for each system, with a mean and an interval for each measure."""

    name: str
    title: str
    data: Annotated[str, Field(description="The name of the dataset.")]
    split: str
    measures: list[str]
    lower_is_better: list[str]
    rows: list[dict[str, Any]]


class ResultsAnswer(Answer):
    """All tables, and whether the server was given a folder of results."""

    given: bool
    tables: list[ResultTable]


class HealthAnswer(Answer):
    """That the server runs."""

    status: str


class ErrorAnswer(BaseModel):
    """Every error, whatever its status."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "code": "unknown_retriever",
                    "message": "there is no retriever named 'pyhton'",
                    "hint": "did you mean python?",
                }
            ]
        }
    )
    code: Annotated[str, Field(description="A word for programs, which stays as it is.")]
    message: Annotated[str, Field(description="What is wrong.")]
    hint: Annotated[str, Field(description="What to do about it.")]
