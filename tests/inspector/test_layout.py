"""The page at every width, in light and dark, with long words: nothing is cut, and nothing is red before an input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentkit import Agent, Layers, Message, ScriptedModel, Session, ToolCall, UserInput
from agentkit.inspector import LocalSource
from agentkit.prompts import AdditionalInfoPrompt, KnowledgePrompt, Template, TextPrompt, WrapPrompt
from tests.inspector.conftest import Serve
from tests.inspector.shop import shop, support, talk
from tests.inspector.test_page import CONTRAST

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api").expect

WIDTHS = (360, 520, 768, 861, 1024, 1181, 1280, 1440, 1920, 2560)
LONG = "unbreakable_" * 20
OVERFLOWING = """() => [...document.querySelectorAll("body, body *")].filter((one) => {
  if (!one.checkVisibility() || one.closest(".segments, .unseen-label, option, datalist, svg, .skip")) return false;
  const style = getComputedStyle(one);
  if (style.textOverflow === "ellipsis" || one.matches("input, textarea, .tabs, .steps, .titles h1")) return false;
  const hides = style.overflowX !== "visible" && one.scrollWidth > one.clientWidth + 1;
  const box = one.getBoundingClientRect();
  return hides || (box.width > 1 && box.right > innerWidth + 1 && !one.closest(".tabs, .steps"));
}).map((one) => `${one.tagName}.${one.className}: ${one.scrollWidth} of ${one.clientWidth}`).slice(0, 4)"""

CUT_MARKS = """() => [...document.querySelectorAll(".item .tag.failed, .item .word")].filter((mark) =>
  mark.scrollWidth > mark.clientWidth + 1 ||
  mark.getBoundingClientRect().right > mark.parentElement.getBoundingClientRect().right + 1
).map((mark) => mark.textContent)"""


def nested() -> LocalSource:
    """Return a source whose prompts, names and texts contain long words."""
    schema = {
        "type": "object",
        "properties": {LONG: {"type": "string", "description": LONG}, "mode": {"enum": [LONG, "b"]}},
    }
    inner = WrapPrompt([KnowledgePrompt(), TextPrompt(LONG, name=LONG)], "<b>{{ wrapped_str }}</b>")
    layers = Layers(
        [TextPrompt(LONG), AdditionalInfoPrompt(Template(f"{{{{ {LONG} }}}}", params_schema=schema))],
        before_input=WrapPrompt([inner], "<a>{{ wrapped_str }}</a>"),
    )
    calls = Message("assistant", LONG, tool_calls=(ToolCall("c1", "look", f'{{"word": "{LONG}"}}'),))

    def look(word: str) -> str:
        """Look."""
        raise LookupError(word)

    agent = Agent(ScriptedModel([calls, LONG, LONG]), layers=layers, tools=[look], name=LONG)
    session = Session(LONG)
    journal = agent.run_sync(UserInput(LONG, {LONG: LONG}), run_id="r", session=session).journal
    return LocalSource([agent, support()], sessions=[session], runs=[journal])


def test_nothing_is_cut_at_any_width_and_no_word_is_too_long(page: Page, serve: Serve) -> None:
    url = serve(nested())
    problems: list[str] = []
    for place in (
        *(f"run/r?tab={tab}" for tab in ("play", "layers", "timeline", "changes", "payload", "recall")),
        "new",
    ):
        page.goto(f"{url}#/{place}")
        page.wait_for_load_state("networkidle")
        if place.endswith("play"):
            page.get_by_role("button", name="Ask", exact=True).press("Enter")
            expect(page.get_by_role("article", name="Answer 1")).to_contain_text(LONG)
            page.get_by_role("button", name="Save as test case").last.press("Enter")
            expect(page.get_by_label("Expected answer")).to_be_focused()
            page.keyboard.press("Escape")
            expect(page.get_by_role("button", name="Save as test case").last).to_be_focused()
            page.get_by_role("button", name="Save as test case").last.press("Enter")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            problems += [f"{place} at {width}: {problem}" for problem in page.evaluate(OVERFLOWING)]
    # Long names of a run do not shorten the mark of failed tools and the state.
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{url}#/")
        expect(page.locator(".item .tag.failed")).to_have_text("1 tool error")
        problems += [f"list at {width}: {problem}" for problem in page.evaluate(CUT_MARKS)]
    assert problems == []


def test_no_field_is_red_before_an_input(page: Page, serve: Serve) -> None:
    session = talk(2)
    session.keep_kwargs({})
    url = serve(LocalSource([support()], sessions=[session]))
    for place, name in (("session/ada/0", "Compose"), ("new", "Run")):
        page.goto(f"{url}#/{place}")
        expect(page.get_by_role("button", name=name, exact=True)).to_be_visible()
        expect(page.get_by_label("Customer")).to_be_visible()
        page.wait_for_load_state("networkidle")
        expect(page.locator("[aria-invalid=true], .state.error, .wrong:not(:empty)")).to_have_count(0)
    page.get_by_label("orders").fill("-1")
    expect(page.get_by_label("orders")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("Customer")).not_to_have_attribute("aria-invalid", "true")


def test_the_text_at_a_cache_border_has_no_empty_lines(page: Page, serve: Serve) -> None:
    page.goto(f"{serve(shop())}#/session/ada/3?tab=layers")
    page.locator(".cache-mark").first.wait_for(state="attached")
    distances = page.locator(".cache-mark").evaluate_all(
        """(marks) => marks.map((mark) => {
          const shown = (one, next) => { while ((one = one[next]) && !one.matches(".piece")); return one; };
          const [before, after] = [shown(mark, "previousElementSibling"), shown(mark, "nextElementSibling")];
          const [box, line] = [mark.getBoundingClientRect(), 22];
          const above = before ? box.top - before.getBoundingClientRect().bottom : 0;
          return Math.max(above, after ? after.getBoundingClientRect().top - box.bottom : 0) < line;
        })"""
    )
    assert distances and all(distances)


def test_text_of_every_tab_has_contrast_in_light_and_dark_and_narrow(page: Page, serve: Serve) -> None:
    url = serve(shop())
    problems: list[str] = []
    for tab in ("layers", "play", "timeline", "changes", "recall"):
        page.goto(f"{url}#/run/run-finished?tab={tab}")
        page.wait_for_load_state("networkidle")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            for width in (360, 1440):
                page.set_viewport_size({"width": width, "height": 900})
                low = [text for ratio, text in page.evaluate(CONTRAST) if ratio < 4.5]
                problems += [f"{tab}, {scheme}, {width}: {text}" for text in low[:3]]
    assert problems == []
