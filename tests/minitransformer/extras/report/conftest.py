"""Pages in a browser that may not complain about them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Browser


@pytest.fixture
def opened(browser: Browser, pages: dict[str, Path]) -> Iterator[Callable[..., Browser]]:
    """A function that opens one of a module's pages at an address's fragment."""

    def at(name: str, fragment: str = "") -> Browser:
        assert browser.complaints() == []  # of the page before
        browser.show()
        browser.open(f"{pages[name].as_uri()}#{fragment}")
        return browser

    browser.events.clear()
    yield at
    assert browser.complaints() == []
