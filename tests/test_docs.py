"""The documentation is executed: a code block that does not work is a failing test.

The blocks of a file run in order, in an empty folder. `python` blocks share a namespace. If the next block is `text`
or `output`, it is exactly the output of the `python` block. A block with a title is written to the file of that name.
`bash` blocks, but not `sh` blocks, are run if the page is in `SHELL`, with `...` for text that differs between runs; on
other pages the named scripts must exist. Pages with models of OpenAI call a server on this machine, through the
official SDK.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from starlette.responses import Response

from tests.cases import collected
from tests.model_evaluation.evaluation_servers import likely
from tests.paths import GENERATED
from tests.servers import Asked, chat_reply, in_turn, serve
from tests.waiting import LONG, reserved_port

ROOT = Path(__file__).parent.parent
SHELL = ("tutorial.md", "evaluate-a-model.md")
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent not in GENERATED)]
FENCE = re.compile(r"^( *)(`{3,})(\w*)([^\n`]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    code: str
    line: int  # of the first line of code, counted from 1
    title: str = ""


def _id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _title(info: str) -> str:
    found = re.search(r'title="([^"]+)"', info)
    return found[1] if found else ""


def blocks(page: str) -> Iterator[Block]:
    for match in FENCE.finditer(page):
        indent, _, language, info, code = match.groups()
        lines = (line.removeprefix(indent) for line in code.splitlines(keepends=True))
        yield Block(language, "".join(lines), page.count("\n", 0, match.start(5)) + 1, _title(info))


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


class Shell:
    """Runs the commands of a page, each block after the previous block. A server runs until the end of the page."""

    def __init__(self) -> None:
        self._held = contextlib.ExitStack()
        self.port = self._held.enter_context(reserved_port())
        self.serving: list[subprocess.Popen[bytes]] = []

    def run(self, code: str) -> str:
        if code.startswith("agentkit serve"):
            command = [*shlex.split(code), "--port", str(self.port)]
            self.serving.append(subprocess.Popen([sys.executable, "-m", *command], stderr=subprocess.DEVNULL))
            self._wait()
            return ""
        for path in Path().glob("*.py"):  # the page names the default port
            path.write_text(path.read_text("utf-8").replace(":8000", f":{self.port}"), "utf-8")
        names = f'agentkit() {{ "{sys.executable}" -m agentkit "$@"; }}\npython() {{ "{sys.executable}" "$@"; }}\n'
        names += 'pytest() { python -m pytest -p no:cacheprovider "$@"; }\n'
        done = subprocess.run(
            ["bash", "-euc", f"{names}{code}\necho; pwd"], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{code}{done.stdout}{done.stderr}"
        printed, _, folder = done.stdout.rstrip("\n").rpartition("\n")
        os.chdir(folder)
        return printed

    def _wait(self) -> None:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert self.serving[-1].poll() is None, "the server ended"
            time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def close(self) -> None:
        for one in self.serving:
            one.terminate()
            one.wait(LONG)
        self._held.close()


def run(page: Path, found: list[Block], namespace: dict[str, object], shell: Shell | None = None) -> None:
    for block, following in pairwise([*found, Block("", "", 0)]):
        if block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.code, "utf-8")
            continue
        if block.language == "bash" and shell is not None:
            printed_by = shell.run(block.code)
            if following.language in ("text", "output"):
                expected = "(?s:.*)".join(re.escape(part) for part in _trimmed(following.code).split("..."))
                assert re.fullmatch(expected, _trimmed(printed_by)), f"{page.name}:{block.line} prints\n{printed_by}"
        if block.language != "python":
            continue
        # Blank lines before the code make a traceback point at the line of the page.
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec", dont_inherit=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if following.language in ("text", "output"):
            assert printed.getvalue() == following.code, f"{page.name}:{block.line} does not print what the page says"


@pytest.fixture(scope="module")
def openai() -> Iterator[str]:
    """The address of a server that answers the requests of the pages."""
    answer = in_turn(chat_reply("", ("c1", "stock", '{"item": "lamp"}')), chat_reply("We have 3 lamps."))

    def only_of_tools(asked: Asked) -> Response:
        assert [tool["function"]["name"] for tool in asked.body["tools"]] == ["stock"]
        return answer(asked)

    with serve() as server:
        server.on("gpt-5-mini", only_of_tools)
        server.on("mini", likely(lambda token, before: -0.25 if token == " Good" else -1.0))
        yield server.url


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.long] if page.name in SHELL else [], id=_id(page)) for page in PAGES],
)
def test_the_code_of_a_page_has_the_output_of_the_page(
    page: Path, openai: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", openai)
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-tests")
    module = ModuleType("docs_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # annotations are looked up there
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with contextlib.ExitStack() as stack:
        shell = stack.enter_context(contextlib.closing(Shell())) if page.name in SHELL else None
        run(page, list(blocks(page.read_text("utf-8"))), module.__dict__, shell)


def test_the_scripts_that_a_page_names_exist_and_can_be_run() -> None:
    failures: list[str] = []
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        with collected(failures, page):
            for block in blocks(page.read_text("utf-8")):
                if block.language == "bash":
                    for word in re.findall(r"^\s*(\./\S+)", block.code, re.MULTILINE):
                        assert os.access(ROOT / word, os.X_OK), f"{page.name}:{block.line} names {word}"
    assert failures == []


def test_a_page_whose_code_has_another_output_is_refused() -> None:
    page = "# t\n\n```python\nx = 1\n```\n\n- item\n\n  ```python\n  print(x)\n  ```\n\n```text\n2\n```\n"
    found = list(blocks(page))
    assert [block.line for block in found] == [4, 10, 14]
    with pytest.raises(AssertionError) as caught:
        run(Path("page.md"), found, {})
    assert "page.md:10" in str(caught.value)
    run(Path("page.md"), [*found[:2], Block("output", "1\n", 14)], {})


def test_every_relative_link_leads_to_a_file() -> None:
    failures: list[str] = []
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        with collected(failures, page):
            links = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)[^)]*\)", FENCE.sub("", page.read_text("utf-8")))
            targets = [page.parent / link for link in links]
            missing = [target for target in targets if not target.exists() and target.parent not in GENERATED]
            assert not missing, f"{page.name} links to {missing}"
    assert failures == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_link_to_a_heading_leads_to_a_heading() -> None:
    failures: list[str] = []
    links = 0
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        with collected(failures, page):
            targets = re.findall(r"\]\((?!\w+:)([^)#\s]*)#([^)\s]+)\)", FENCE.sub("", page.read_text("utf-8")))
            missing = [
                f"{target}#{anchor}"
                for target, anchor in targets
                if anchor not in anchors(page.parent / target if target else page)
            ]
            links += len(targets)
            assert not missing, f"{page.name} links to {missing}"
    assert failures == []
    assert links > 20
