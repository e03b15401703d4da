"""Make the pictures of README: pages of a real run in a browser, and what commands print.

    python docs/figures/pictures.py [--run runs/demo]        # needs Chromium, and the runs of docs/guide/watching.md

``pictures.json`` has a hash of what each picture shows; a test compares it with today's files.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FIGURES, EXTRAS = ROOT / "docs" / "figures", ROOT / "minitransformer" / "extras"
SENTENCE = "The small dog sees three red houses."
VIEWS = ("report/attention_page", "report/sentence_page")
SHOWN = {  # picture → the folders of its page, the part of the address that selects a view, width and height
    "live.png": (("report/live_page", *VIEWS, "report/shared"), "", 1_280, 1_360),
    "learning.png": (("report/learning_page", "report/shared"), "", 1_280, 1_520),
    "sentence.png": (("report/sentence_page", "report/shared"), "step=3&head=1&row=3", 1_200, 820),
    "attention.png": (("report/attention_page", "report/shared"), "kind=encoder-decoder&layer=2", 1_200, 620),
    "training.png": (("report/training_page", "report/shared"), "", 1_200, 490),
    "runs.png": (("report/training_page", "report/shared"), "", 1_200, 520),
    "server.png": (("serve/page",), "", 1_200, 640),
}
UPDATES = 700  # of the page that learns
TERMINAL = (  # the commands of terminal.svg
    "minitransformer-train --run runs/short --training.max-updates 300 --training.log-every 100",
    f'echo "{SENTENCE}" | minitransformer-translate',
    'echo "The train departs at half past seven. Can you help me?" | minitransformer-translate',
    'echo "Where does your sister live?" | minitransformer-translate --n-best 3',
)


def hashes() -> dict[str, str]:
    """Return a hash of the files or the commands that each picture shows."""
    shown = {name: _content(folders) for name, (folders, *_) in SHOWN.items()}
    shown["terminal.svg"] = "\n".join(TERMINAL).encode()
    return {name: hashlib.blake2b(content, digest_size=8).hexdigest() for name, content in shown.items()}


def _content(folders: tuple[str, ...]) -> bytes:
    return b"".join(path.read_bytes() for folder in folders for path in sorted((EXTRAS / folder).iterdir()))


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("runs/demo"))
    run = parser.parse_args().run.resolve()
    photograph(run)
    (FIGURES / "terminal.svg").write_text(terminal(run), encoding="utf-8")
    (FIGURES / "pictures.json").write_text(json.dumps(hashes(), indent=1) + "\n", encoding="utf-8")


def photograph(run: Path) -> None:
    """Write a screenshot of each page."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from browser import Browser  # noqa: PLC0415 (the tests' own)

    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(Path(folder) / "profile")
        for name, (_, view, width, height) in SHOWN.items():
            browser.show(width=width, height=height)
            if name == "server.png":
                with served(run) as address:
                    browser.open(address)
                    point_at_a_word(browser)
                    (FIGURES / name).write_bytes(browser.screenshot())
                continue
            page = Path(folder) / "page.html"
            page.write_text(pages(run)[name](), encoding="utf-8")
            browser.open(f"{page.as_uri()}#{view}")
            if name == "learning.png":
                browser.evaluate(f"pause(); while (run.learner.step < {UPDATES}) update(); draw()")
            (FIGURES / name).write_bytes(browser.screenshot())
        browser.close()


def pages(run: Path) -> dict[str, Callable[[], str]]:
    """Return what makes the page of each picture."""
    from minitransformer import Translator  # noqa: PLC0415 (slower to import than the hashes need)
    from minitransformer.extras.report.attended import attended_pair  # noqa: PLC0415
    from minitransformer.extras.report.learning import learning_page  # noqa: PLC0415
    from minitransformer.extras.report.live import live_page  # noqa: PLC0415
    from minitransformer.extras.report.page import attention_page  # noqa: PLC0415
    from minitransformer.extras.report.run_page import run_page  # noqa: PLC0415
    from minitransformer.extras.report.run_record import read_runs  # noqa: PLC0415
    from minitransformer.extras.report.sentence_page import sentence_page  # noqa: PLC0415

    translator = Translator.load(run)
    return {
        "live.png": lambda: live_page(translator, [SENTENCE, "Where does your sister live?", "I have two children."]),
        "learning.png": learning_page,
        "sentence.png": lambda: sentence_page(translator, SENTENCE)[0],
        "attention.png": lambda: attention_page(attended_pair(translator, SENTENCE)),
        "training.png": lambda: run_page(read_runs([run])),
        "runs.png": lambda: run_page(read_runs([run.parent / name for name in ("good", "high", "learned-by-heart")])),
    }


def point_at_a_word(browser: Any) -> None:
    """Translate the sentence on the server's page, and point at the third word."""
    browser.evaluate(f"document.getElementById('text').value = {json.dumps(SENTENCE)}")
    browser.evaluate("document.getElementById('form').requestSubmit()")
    wait_for(browser, "document.querySelector('.words button')")
    box = "document.querySelectorAll('.words button')[2].getBoundingClientRect()"
    x, y = browser.evaluate(f"(({{x, y}}) => [x + 5, y + 5])({box})")
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    wait_for(browser, "!document.getElementById('attention').hidden")


def wait_for(browser: Any, condition: str) -> None:
    """Wait until an expression is true on the page, at most a minute."""
    ends = time.monotonic() + 60
    while not browser.evaluate(f"Boolean({condition})"):
        if time.monotonic() > ends:
            raise TimeoutError(condition)


@contextmanager
def served(run: Path) -> Iterator[str]:
    """Serve a run on a free port, and give the address."""
    command = f"exec minitransformer-serve --run {run} --port 0"
    process = subprocess.Popen(["bash", "-c", command], env=environment(), stderr=subprocess.PIPE, text=True)
    assert process.stderr
    yield process.stderr.readline().split()[0]
    process.kill()
    process.communicate()


def terminal(run: Path) -> str:
    """Run the commands in a directory that has the run, and return what a terminal shows as SVG."""
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(record=True, width=100, file=io.StringIO(), highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "runs").mkdir()
        (Path(folder) / "runs/demo").symlink_to(run)
        for command in TERMINAL:
            options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment(), check=True, **options)
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            console.print(Text.from_ansi(done.stdout))
    svg = console.export_svg(title="minitransformer", unique_id="terminal")
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # fonts from elsewhere


def environment() -> dict[str, str]:
    """Return an environment in which commands are those of this Python and this tree."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}


if __name__ == "__main__":
    main()
