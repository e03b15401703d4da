"""Make the pictures of README: pages of a real run in a browser.

    python docs/figures/pictures.py [--run runs/demo]        # needs Chromium

``pictures.json`` has a hash of what each picture shows; a test compares it with today's files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIGURES, REPORT = ROOT / "docs" / "figures", ROOT / "minitransformer" / "extras" / "report"
SENTENCE = "The small dog sees three red houses."
SHOWN = {  # picture → the folder of its page, the part of the address that selects a view, width and height
    "sentence.png": ("sentence_page", "step=3&head=1&row=3", 1_200, 820),
    "attention.png": ("attention_page", "kind=encoder-decoder&layer=2", 1_200, 620),
}


def hash_of(folder: str) -> str:
    """Return a hash of the files that make a page."""
    files = sorted(path for name in (folder, "shared") for path in (REPORT / name).iterdir())
    return hashlib.blake2b(b"".join(path.read_bytes() for path in files), digest_size=8).hexdigest()


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("runs/demo"))
    run = parser.parse_args().run
    photograph(run)
    hashes = {name: hash_of(folder) for name, (folder, *_) in SHOWN.items()}
    (FIGURES / "pictures.json").write_text(json.dumps(hashes, indent=1) + "\n", encoding="utf-8")


def photograph(run: Path) -> None:
    """Write a screenshot of each page."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from browser import Browser  # noqa: PLC0415 (the tests' own)

    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(Path(folder) / "profile")
        for name, make in pages(run).items():
            page = Path(folder) / "page.html"
            page.write_text(make(), encoding="utf-8")
            _, view, width, height = SHOWN[name]
            browser.show(width=width, height=height)
            browser.open(f"{page.as_uri()}#{view}")
            (FIGURES / name).write_bytes(browser.screenshot())
        browser.close()


def pages(run: Path) -> dict[str, Callable[[], str]]:
    """Return what makes the page of each picture."""
    from minitransformer import Translator  # noqa: PLC0415 (slower to import than the hashes need)
    from minitransformer.extras.report.attended import attended_pair  # noqa: PLC0415
    from minitransformer.extras.report.page import attention_page  # noqa: PLC0415
    from minitransformer.extras.report.sentence_page import sentence_page  # noqa: PLC0415

    translator = Translator.load(run)
    return {
        "sentence.png": lambda: sentence_page(translator, SENTENCE)[0],
        "attention.png": lambda: attention_page(attended_pair(translator, SENTENCE)),
    }


if __name__ == "__main__":
    main()
