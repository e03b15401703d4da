"""The optimizers of the page docs/learn/optimizers.md, as a module ``optimizers`` that settings can name."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs/learn/optimizers.md"
CODE = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)

optimizers: Any = ModuleType("optimizers")
exec(compile(CODE[0], str(PAGE), "exec"), vars(optimizers))
sys.modules["optimizers"] = optimizers
