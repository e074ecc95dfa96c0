"""The documentation is executed: a code block that no longer works is a failing test.

The `python` blocks of a file run in order, in one namespace and an empty folder. When the next block is `text` or
`output`, it is exactly what the `python` block prints. `bash` blocks are not run; the scripts they name must exist. Pages
that ask OpenAI ask a server on this machine, through the official SDK.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from starlette.responses import Response

from tests.servers import Asked, in_turn, says, serve

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)(`{3,})(\w*)[^\n`]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    code: str
    line: int  # of the first line of code, counted from 1


def blocks(page: str) -> Iterator[Block]:
    for match in FENCE.finditer(page):
        indent, _, language, code = match.groups()
        lines = (line.removeprefix(indent) for line in code.splitlines(keepends=True))
        yield Block(language, "".join(lines), page.count("\n", 0, match.start(4)) + 1)


def run(page: Path, found: list[Block], namespace: dict[str, object]) -> None:
    for block, following in pairwise([*found, Block("", "", 0)]):
        if block.language != "python":
            continue
        # Blank lines in front make a traceback point at the line of the page.
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec", dont_inherit=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if following.language in ("text", "output"):
            assert printed.getvalue() == following.code, f"{page.name}:{block.line} does not print what the page says"


@pytest.fixture(scope="module")
def openai() -> Iterator[str]:
    """The address of a server that answers what the pages ask."""
    answer = in_turn(says("", ("c1", "stock", '{"item": "lamp"}')), says("We have 3 lamps."))

    def only_of_tools(asked: Asked) -> Response:
        assert [tool["function"]["name"] for tool in asked.body["tools"]] == ["stock"]
        return answer(asked)

    with serve() as server:
        server.on("gpt-5-mini", only_of_tools)
        yield server.url


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_does_what_the_page_says(
    page: Path, openai: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", openai)
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-tests")
    module = ModuleType("docs_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # annotations are looked up there
    monkeypatch.chdir(tmp_path)
    run(page, list(blocks(page.read_text("utf-8"))), module.__dict__)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_the_scripts_a_page_names_exist_and_can_be_run(page: Path) -> None:
    for block in blocks(page.read_text("utf-8")):
        if block.language == "bash":
            for word in re.findall(r"^\s*(\./\S+)", block.code, re.MULTILINE):
                assert os.access(ROOT / word, os.X_OK), f"{page.name}:{block.line} names {word}"


def test_a_page_whose_code_prints_something_else_is_refused() -> None:
    page = "# t\n\n```python\nx = 1\n```\n\n- item\n\n  ```python\n  print(x)\n  ```\n\n```text\n2\n```\n"
    found = list(blocks(page))
    assert [block.line for block in found] == [4, 10, 14]
    with pytest.raises(AssertionError, match=r"page\.md:10"):
        run(Path("page.md"), found, {})
    run(Path("page.md"), [*found[:2], Block("output", "1\n", 14)], {})


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)[^)]*\)", FENCE.sub("", page.read_text("utf-8")))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing, f"{page.name} links to {missing}"
