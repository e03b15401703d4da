"""What README shows of the demonstration."""

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def demonstrated() -> list[tuple[str, str]]:
    """Return README's table of English lines and their German translations."""
    _, _, table = README.read_text(encoding="utf-8").partition("| you type | it answers |\n|---|---|\n")
    rows, _, _ = table.partition("\n\n")
    return re.findall(r"^\| (.+) \| (.+) \|$", rows, re.M)
