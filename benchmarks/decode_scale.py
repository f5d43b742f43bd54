"""Decode time as the number of docids grows, with one-pass finishing off: all six symbols are stepped through.

    python benchmarks/decode_scale.py [--docids 100000 1000000 10000000]

`ratio` compares each time with that of the smallest set.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from triever.lab.bench_decode import DecodeOptions, bench_decode
from triever.lab.results import benchmark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docids", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    sizes = parser.parse_args().docids
    rows = []
    for size in sizes:
        options = DecodeOptions(docids=size, beams=(10,), finish=(False,), peer=False, rounds=9)
        rows += [{"docids": size, **row} for row in bench_decode(options)]
    for row in rows:
        smallest = next(other for other in rows if other["normalisation"] == row["normalisation"])
        row["ratio"] = round(row["seconds"] / smallest["seconds"], 2)
    result = benchmark(["python", "benchmarks/decode_scale.py"], rows)
    print(json.dumps(result, indent=1))
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
