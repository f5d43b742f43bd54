"""A real Chromium for tests of the page, and what it notes: requests, errors, and findings of axe."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = "the page is tested in Chromium, which is not here: apt install chromium"
WIDE, PHONE = (1280, 900), (400, 800)


def chromium() -> str:
    """Where Chromium is; a test without it says that it is skipped."""
    if CHROMIUM is None:
        pytest.skip(MISSING)
    return CHROMIUM


@contextmanager
def browser() -> Generator[Any]:
    """A browser that ends with the block."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested by playwright: pip install it")
    # Chromium refuses its sandbox to root, as whom containers run.
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        own = driver.chromium.launch(executable_path=chromium(), args=flags)
        try:
            yield own
        finally:
            own.close()


@dataclass
class Tab:
    """A page that is open, at a server."""

    page: Any
    url: str
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def open(self, address: str = "") -> Tab:
        """Go there, and wait until all is drawn."""
        self.page.goto(f"{self.url}/{address}")
        return self.settle()

    def settle(self) -> Tab:
        """Wait until nothing is asked any more."""
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_selector("[aria-busy=true], .stale, .skeleton", state="detached")
        return self

    def texts(self, selector: str) -> list[str]:
        """What stands in elements, one text for each."""
        texts = self.page.locator(selector).evaluate_all("found => found.map(one => one.innerText ?? one.textContent)")
        return [text.strip() for text in texts]

    def findings(self) -> list[dict[str, Any]]:
        """What axe finds serious or critical here."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        return [
            {"id": one["id"], "nodes": [node["html"][:160] for node in one["nodes"][:3]]}
            for one in found
            if one["impact"] in ("serious", "critical")
        ]

    def overflow(self) -> int:
        """How many pixels the page is wider than its window."""
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@contextmanager
def tab(own: Any, url: str, size: tuple[int, int] = WIDE, scheme: str = "light") -> Generator[Tab]:
    """A new tab of a browser."""
    viewport = {"width": size[0], "height": size[1]}
    context = own.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(15_000)
    opened = Tab(page, url)
    page.on("request", lambda request: opened.requests.append(request.url))
    page.on("pageerror", lambda error: opened.problems.append(str(error)))
    page.on("console", lambda line: opened.problems.append(line.text) if line.type == "error" else None)
    try:
        yield opened
    finally:
        context.close()
