"""The inspector on loopback, and a real Chromium that opens it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette

from agentkit.inspector import InspectorSource, routes
from tests.loopback import serving
from tests.waiting import LONG

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
Serve = Callable[[InspectorSource], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve a source, and return the address of the page."""
    with ExitStack() as stack:

        def begin(source: InspectorSource) -> str:
            address, _ = stack.enter_context(serving(Starlette(routes=routes(lambda request: source))))
            return f"{address}/inspector/"

        yield begin


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium: Debian's, or the value of CHROMIUM.

    For a module, not for all tests: while it runs, its thread has an event loop, which tests of async code would find.
    """
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("there is no chromium on this machine")
    driving = pytest.importorskip("playwright.sync_api")
    driving.expect.set_options(timeout=LONG * 1000)
    with driving.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=[*FLAGS], headless=True)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page whose errors fail the test: exceptions of scripts, and requests that the content policy refuses."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(LONG * 1000)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on(
        "console",
        lambda message: (
            problems.append(message.text)
            if message.type == "error" and "Failed to load resource" not in message.text
            else None
        ),
    )
    yield opened
    context.close()
    assert not problems
