"""The examples print what they say they print, and the demo fails when an answer is not what it should be."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.responses import Response

from tests.effort import spread
from tests.paths import ROOT
from tests.servers import Asked, ChatServer, says

EXAMPLES = sorted(
    path for path in (ROOT / "examples").glob("**/*.py") if path.name == "main.py" or path.parent.name == "examples"
)
LABEL = re.compile(r"\[(?:README\.md|docs/[\w-]+\.md)#\d+\]")


def run(script: Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", **environment}
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=cwd,
        capture_output=True,
        encoding="utf-8",
        env=environment,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "example",
    spread([path for path in EXAMPLES if path.name != "demo.py"], every=3),
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_an_example_prints_what_its_docstring_says(example: Path, tmp_path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(example.read_text("utf-8"))) or ""
    _, _, printed = docstring.partition("Prints:\n\n")
    assert printed, "the docstring says nothing about what it prints"
    done = run(example, tmp_path, XDG_RUNTIME_DIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    said = [line.rstrip() for line in done.stdout.splitlines()]
    assert said == textwrap.dedent(printed).rstrip().splitlines()


def test_every_example_has_a_page_and_a_row() -> None:
    index = (ROOT / "examples" / "README.md").read_text("utf-8")
    for example in EXAMPLES:
        if example.name == "main.py":
            assert (example.parent / "README.md").read_text("utf-8").startswith("# ")
            assert f"]({example.parent.name}/README.md)" in index
        else:
            assert f"`{example.name}`" in index


def test_the_demo_answers_from_recall_and_with_a_tool_and_shows_how() -> None:
    done = run(ROOT / "examples/demo.py")
    assert (done.returncode, done.stderr) == (0, "")
    recall, tool, checked = done.stdout.split("\n== ")[1:]
    assert "model: offline" in done.stdout
    assert re.search(r"\d\.\d\d  docs/architecture\.md:\d+  Architecture > Memory", recall)
    assert re.search(r"before_input\[0\] +chunks +[\d,]+ +\d+% █+ +documents", recall)
    assert LABEL.search(recall.partition("answer:")[2])
    assert 'tool call: calculate {"expression": "(19 + 23) * 7"}\ntool result: success: 294' in tool
    assert "intermediate" in tool
    assert "the chunk cited is in the files: docs/" in checked


@pytest.mark.long
def test_the_demo_asks_a_real_model_where_there_is_one(server: ChatServer) -> None:
    def answers(asked: Asked) -> Response:
        question = asked.body["messages"][1]["content"]
        if asked.body["messages"][-1]["role"] == "tool":
            return says(f"The result is {asked.body['messages'][-1]['content']}.")(asked)
        if "calculate" in question:
            return says("", ("c1", "calculate", '{"expression": "(19 + 23) * 7"}'))(asked)
        return says(f"From the database {LABEL.findall(question)[0]}.")(asked)

    server.on("gpt-5-mini", answers)
    done = run(ROOT / "examples/demo.py", OPENAI_BASE_URL=server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "model: gpt-5-mini" in done.stdout
    assert "The result is 294." in done.stdout


def made_up(text: str) -> Callable[[Asked], Response]:
    return lambda asked: says(text)(asked)


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "text", "wrong"),
    [
        ("uncited", "It is built again.", "the answer cites no chunk"),
        (
            "inventive",
            "Yes [docs/a.md#99999].",
            "chunk docs/a.md#99999 was cited and never recalled",
        ),
        ("guessing", "It is 294.", "the tool was not called, or did not return 294"),
        ("forgetful", "No idea.", "the answer does not contain 294"),
    ],
)
def test_the_demo_fails_when_an_answer_is_not_what_it_should_be(
    server: ChatServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: str,
    text: str,
    wrong: str,
) -> None:
    server.on(model, made_up(text))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_MODEL", model)
    monkeypatch.chdir(ROOT)
    demo = runpy.run_path(str(ROOT / "examples/demo.py"))
    assert demo["main"]() == 1
    assert f"WRONG: {wrong}" in capsys.readouterr().out


@pytest.mark.long
def test_the_demo_reports_an_unreachable_model_in_a_line() -> None:
    done = run(ROOT / "examples/demo.py", OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("demo: gpt-5-mini at 127.0.0.1:9: no connection")


def test_the_demo_runs_from_any_folder_and_leaves_nothing_there(folder: Path) -> None:
    (folder / "empty").mkdir()
    command = [sys.executable, str(ROOT / "examples/demo.py")]
    done = subprocess.run(command, cwd=folder / "empty", capture_output=True, timeout=120, check=False)
    assert done.returncode == 0
    assert list((folder / "empty").iterdir()) == []
