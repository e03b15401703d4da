"""Count the names that a model of the demonstration copies although they are not in its word list.

    python benchmarks/copied_names.py [RUN]

RUN: runs/demo if it is not given.  Each name occurs in four sentences.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from minitransformer import Translator
from minitransformer.extras.demo.words import DATA

CANDIDATES = """
Obama Merkel Trump Biden Putin Macron Zelensky Musk Einstein Newton Darwin Mozart Beethoven Picasso Goethe Shakespeare
Vaswani Shazeer Parmar Uszkoreit Jones Gomez Kaiser Polosukhin Smith Johnson Schmidt Kowalski Garcia Rodriguez Fernandez
Oliveira Papadopoulos Olsen Ivanov Yilmaz Kaya Chen Zhang Nguyen Tanaka Nakamura Singh Patel Gupta Krishna Mohammed
Fatima Peter Julia Lisa Tim Max Emma Noah Mia Liam Olivia Lukas Leon Finn Jonas Hannah Sophie Clara Felix Oskar Greta
Ida Karl Bob Alice Jennifer Christopher Sebastian Charlotte Benjamin Alexander Elizabeth Katharina Wolfgang Heinrich
Matthias Stephanie
"""
KNOWN = set(re.findall(r"\w+", str(DATA)))
NAMES = [name for name in CANDIDATES.split() if name not in KNOWN]
SENTENCES = (
    "{} sees the red house.",
    "Where does {} live?",
    "The old woman gives {} the new book.",
    "I know that {} has a small dog.",
)


def copied(translator: Translator) -> tuple[int, list[str]]:
    """Return the number of translations with the source's name, and the other translations, each after its name."""
    cases = [(name, sentence.format(name)) for sentence in SENTENCES for name in NAMES]
    found = translator.translate([source for _, source in cases], beam=4)
    others = [
        f"{name}: {text}" for (name, _), text in zip(cases, found, strict=True) if name not in re.findall(r"\w+", text)
    ]
    return len(cases) - len(others), others


def main() -> None:
    """Print the number, and every translation that lacks its name."""
    n_copied, others = copied(Translator.load(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/demo")))
    print(f"{n_copied} of {n_copied + len(others)} names are copied")
    print("\n".join(others))


if __name__ == "__main__":
    main()
