"""A transformer for PyTerrier, which needs no Java: `TrieverTransformer("models/handbook") % 10 >> reranker`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from triever.arguments import whole
from triever.data.records import Result
from triever.errors import needed_for
from triever.integrations.sources import Source, opened, with_documents

with needed_for("the adapter for PyTerrier", "pip install 'triever[pyterrier]'"):
    import pandas as pd
    import pyterrier as pt


class TrieverTransformer(pt.Transformer):
    """From queries to documents, by a retriever of Triever: a saved folder, a server's address, or a retriever.

    `k` says how many for each query, `where` filters by metadata, and with `text` there are columns title and text,
    for transformers that read documents.
    """

    def __init__(
        self, source: Source, k: int = 1000, *, where: Mapping[str, object] | None = None, text: bool = False
    ) -> None:
        super().__init__()
        self._searcher, self._k, self._where, self._text = opened(source), whole(k, "k"), where, text

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """A frame with a row for each hit: the columns of its query, and docno, score and rank."""
        pt.validate.query_frame(inp, extra_columns=["query"])
        queries = inp.to_dict("records")
        results = self._searcher.search_many([query["query"] for query in queries], self._k, where=self._where)
        rows = [{**query, **hit} for query, result in zip(queries, results, strict=True) for hit in self._hits(result)]
        added = ["docno", "score", "rank", *(["title", "text"] if self._text else [])]
        return pd.DataFrame(rows, columns=list(dict.fromkeys([*inp.columns, *added])))

    def _hits(self, result: Result) -> Iterator[dict[str, Any]]:
        found = with_documents(self._searcher, result) if self._text else []
        for place, hit in enumerate(result):
            read = {"title": found[place].document.title, "text": found[place].text} if self._text else {}
            yield {"docno": hit.id, "score": hit.score, "rank": pt.model.FIRST_RANK + place, **read}
