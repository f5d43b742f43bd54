"""Sixteen questions about the documents in examples/lighthouse, which the model has not seen.

    python benchmarks/lighthouse.py models/squad

The model is a saved reatt or answerer. It learns nothing from the documents; it only finds them and reads them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import triever
from triever import ReAtt, ReAttTuning
from triever.data.answers import exact_match, f1
from triever.lab import results

DOCUMENTS = Path(__file__).parents[1] / "examples" / "lighthouse"
QUESTIONS = {
    "Which company made the lens?": "Auguste Ferrand",
    "Who was the first head keeper?": "Jonas Brekke",
    "When was the tower finished?": "1874",
    "How high is the tower?": "31 metres",
    "Who was the architect of the lighthouse?": "Ingrid Vollan",
    "Who proposed to screen the lantern?": "Tove Lindqvist",
    "How many steps lead to the lantern room?": "164",
    "What was the name of the supply boat?": "Edda",
    "Where was the supply boat built?": "Lund",
    "What replaced the bell in 1911?": "a siren driven by compressed air",
    "When did the siren fall silent?": "1979",
    "Who brought the soil to the garden?": "Anna Brekke",
    "Which book was borrowed most often?": "the atlas",
    "How many visitors does the museum have every year?": "12,000",
    "Who printed the sea chart?": "Pieter Haan",
    "What did the keeper receive for the night of the storm?": "the silver medal of the coast guard",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a saved reatt")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    given = parser.parse_args()
    untrained = ReAttTuning(steps=0, answer_steps=0)
    model = ReAtt(start=given.model, training=untrained).fit(triever.load_dataset(str(DOCUMENTS)))
    rows = [
        {
            "question": answer.question,
            "right": right,
            "written": answer.written,
            "probability": round(answer.probability, 3),
            "given": answer.text is not None,
            "EM": exact_match(answer.written, (right,)),
            "F1": round(f1(answer.written, (right,)), 3),
        }
        for answer, right in zip(model.ask_many([*QUESTIONS]), QUESTIONS.values(), strict=True)
    ]
    results.write(given.out, results.benchmark(["python", *sys.argv], rows))


if __name__ == "__main__":
    main()
