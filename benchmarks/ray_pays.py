"""From how many documents on several machines encode faster than one process.

`python benchmarks/ray_pays.py DATA benchmarks/ray_pays.json` needs triever[ray] and the weights `minilm`. Measured:
documents a second that this model encodes with one thread in one process; how long Ray takes to start; and what sending
documents to two workers costs beside encoding them, as a fixed time and a time for each document, with an encoder that
computes nearly nothing. Computed from that: the number of documents from which on 2, 4 and 8 machines with one worker
each are faster, the start of Ray included. All of Ray is on one machine: what a network adds is not in the numbers.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import triever
from triever import Dense, Document
from triever.models.encoder import encode

MODEL, SLOW = "minilm", 400
QUICK = "scratch:hidden=8,layers=1,heads=1,vocabulary=2000,positions=256"
SIZES = (4_000, 24_000)
MACHINES = (2, 4, 8)


def main() -> None:
    name, out = sys.argv[1], Path(sys.argv[2])
    documents = [*islice(triever.load_dataset(name).documents(), max(SIZES))]
    facts: dict[str, Any] = {"data": name, "processors": os.cpu_count(), "machine": platform.machine()}
    facts |= {"threads": os.environ.get("OMP_NUM_THREADS", ""), "load at the start": round(os.getloadavg()[0], 1)}
    seconds, tokens = encoding(MODEL, documents[:SLOW])
    rate = SLOW / seconds
    facts |= {"model": MODEL, "documents": SLOW, "tokens a document": round(tokens / SLOW)}
    facts["documents a second, one process"] = round(rate, 1)
    facts["start of Ray, s"] = round(timed(start), 1)
    rows = [sent(documents[:size]) for size in SIZES]
    each = (rows[1]["beside, s"] - rows[0]["beside, s"]) / (SIZES[1] - SIZES[0])
    fixed = rows[0]["beside, s"] - SIZES[0] * each
    facts["sent to two workers"] = rows
    facts |= {"beside encoding, s": round(fixed, 1), "and for each document, ms": round(1000 * each, 2)}
    before = facts["start of Ray, s"] + fixed
    facts["computed: documents from which on it is faster"] = {
        f"{machines} machines, {factor} x as fast": breaks_even(factor * rate, machines, before, each)
        for factor in (1, 10)
        for machines in MACHINES
    }
    out.write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


def breaks_even(rate: float, machines: int, before: float, each: float) -> int | None:
    """The least n with n / rate > before + n / (rate * machines) + n * each; none where sending takes all the gain."""
    gain = 1 / rate - 1 / (rate * machines) - each
    return round(before / gain) if gain > 0 else None


def sent(documents: Sequence[Document]) -> dict[str, float]:
    """How long workers take for documents that are encoded nearly at once, and how much of that is not encoding."""
    from triever.integrations.ray import RayEncoding
    from triever.models.elsewhere import elsewhere

    here, _ = encoding(QUICK, documents)
    with tempfile.TemporaryDirectory() as place, elsewhere(RayEncoding(Path(place) / "encoding", workers=2)):
        there, _ = encoding(QUICK, documents)
    row = {"documents": len(documents), "here, s": round(here, 1), "with Ray, s": round(there, 1)}
    return row | {"beside, s": round(there - here / 2, 1)}


def encoding(backbone: str, documents: Sequence[Document]) -> tuple[float, int]:
    """Seconds to encode documents, and how many tokens they have."""
    dense = Dense(backbone=backbone).fit(triever.Dataset.of("some", documents[:100]))
    encoder = dense.engine.encoder
    tokens = dense.reading.documents(encoder, documents)
    return timed(lambda: encode(encoder, tokens)), len(tokens.flat)


def timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def start() -> None:
    from triever.integrations.ray import started

    started()


if __name__ == "__main__":
    main()
