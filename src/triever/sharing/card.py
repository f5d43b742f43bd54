"""The README of a repository on the Hugging Face hub: the card of a saved retriever, and how to use it."""

from __future__ import annotations

import re

from triever import artifact
from triever.retriever import MADE_FROM, WEIGHTS

MARK = "<!-- Written by `triever push`, which writes it again; without this line it leaves the card as it is. -->"
_HUB_WEIGHTS = re.compile(r"\bhub ([\w.-]+/[\w.-]+) at ")


def readme(snapshot: artifact.Snapshot, repository: str) -> str:
    """The card of a retriever with the facts that the hub reads, and the commands that fetch it."""
    from huggingface_hub import ModelCardData

    kind = snapshot.manifest.kind
    made_from = snapshot.manifest.state.get(MADE_FROM)
    weights = str(made_from.get(WEIGHTS, "")) if isinstance(made_from, dict) else ""
    facts = ModelCardData(
        library_name="triever",
        tags=["triever", "information-retrieval", kind],
        base_model=_HUB_WEIGHTS.findall(weights) or None,
    )
    card = snapshot.text("card") if snapshot.has("card") else f"# A Triever {kind}\n"  # a query writer has none
    name = repository.rpartition("/")[2]
    use = f"""## Use

```sh
pip install triever
triever pull {repository} --out {name}
triever search {name} "your question"
```
"""
    return f"---\n{facts.to_yaml()}\n---\n\n{card}\n{use}\n{MARK}\n"
