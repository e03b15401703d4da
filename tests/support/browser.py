"""A headless Chromium, spoken to over its remote debugging pipe; no driver and no library in between.

Source: the Chrome DevTools Protocol; --remote-debugging-pipe reads JSON messages from descriptor 3 and writes to 4,
each closed with a zero byte.
"""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from waiting import TIME_LIMIT

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
        "ArrowRight": 39, "ArrowDown": 40}  # fmt: skip

COMPLAINTS = {"Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening"}

WITH_PIPE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page of one Chromium; close it."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM
        (to_read, self._write), (self._read, to_write) = os.pipe(), os.pipe()
        passed = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (to_read, to_write)]  # neither 3 nor 4
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        command = [sys.executable, "-c", WITH_PIPE, *map(str, passed), CHROMIUM, *flags, "about:blank"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, pass_fds=passed, stdin=quiet, stdout=quiet, stderr=quiet)
        for descriptor in (to_read, to_write, *passed):
            os.close(descriptor)
        self._received = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        page = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        self.ask("Page.setLifecycleEventsEnabled", enabled=True)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to one command; what else is reported meanwhile goes to ``events``."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = json.dumps({"id": self._number, "method": method, "params": params, **session})
        os.write(self._write, message.encode() + b"\0")
        while (answer := self._next_message()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return dict(answer["result"])

    def open(self, address: str) -> None:
        """Go to an address, and wait until the page is loaded."""
        self.ask("Page.navigate", url="about:blank")  # another fragment alone would not load it again
        self.events.clear()
        loader = self.ask("Page.navigate", url=address)["loaderId"]
        while not any(_is_loaded(event, loader) for event in self.events):
            self.events.append(self._next_message())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def press(self, *keys: str, modifiers: int = 0) -> None:
        """Press and let go of keys, one after the other, while modifiers (Alt 1, Ctrl 2, Meta 4) are held down."""
        for key in keys:
            named = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": KEYS[key]}
            text = {"text": "\r" if key == "Enter" else key} if key in (" ", "Enter") else {}
            self.ask("Input.dispatchKeyEvent", type="keyDown", modifiers=modifiers, **named, **text)
            self.ask("Input.dispatchKeyEvent", type="keyUp", **named)

    def tap(self, selector: str) -> None:
        """Tap with a finger on the middle of an element."""
        box = f"document.querySelector({selector!r}).getBoundingClientRect()"
        x, y = self.evaluate(f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({box})")
        self.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def show(self, *, width: int = 1200, height: int = 800, theme: str = "light") -> None:
        """Give the window a size, and the page a theme that its user prefers."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def screenshot(self) -> bytes:
        """Return a picture of the page, as PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot")["data"])

    def complaints(self) -> list[dict[str, Any]]:
        """Return the complaints of the page since it was opened."""
        return [event for event in self.events if event.get("method") in COMPLAINTS]

    def close(self) -> None:
        self._session = None
        self.ask("Browser.close")
        self._process.wait(timeout=TIME_LIMIT)
        os.close(self._write)
        os.close(self._read)

    def _next_message(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            received = os.read(self._read, 1 << 16)
            assert received, "Chromium has gone"
            self._received += received
        message, _, self._received = self._received.partition(b"\0")
        return dict(json.loads(message))


def _is_loaded(event: dict[str, Any], loader: str) -> bool:
    wanted = {"loaderId": loader, "name": "load"}
    return event.get("method") == "Page.lifecycleEvent" and wanted.items() <= event["params"].items()
