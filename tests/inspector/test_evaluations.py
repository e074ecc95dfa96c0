"""Evaluations on the page: their rows by score, one click to the run, two versions side by side; texts stay texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from typer.testing import CliRunner

from agentkit import Agent, ScriptedModel
from agentkit.evals import EvaluationError, EvaluationReport, evaluate_sync, exact
from agentkit.inspector import LocalSource
from tests.inspector.conftest import Serve
from tests.waiting import LONG

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "<img src=x onerror=\"document.title='owned'\">\u202e</td><script>document.title='owned'</script>"
ROWS: list[dict[str, Any]] = [
    {"input": "What is 1 + 1?", "expected": "2", "tags": ["sums"], "id": "one"},
    {"input": HOSTILE, "expected": HOSTILE, "tags": [HOSTILE], "id": HOSTILE},
    {"input": "fail", "expected": "?", "id": "third"},
    {"input": "A long question. " * 60, "expected": "yes " * 50, "tags": ["sums", "long"]},
]


def clerk(other: str) -> Agent[Any, Any]:
    def reply(composition: Any) -> str:
        text = composition.messages[-1].text
        if text == "fail":
            raise ConnectionError(f"no network {HOSTILE}")
        return {"What is 1 + 1?": other, HOSTILE: HOSTILE}.get(text, "yes " * 50)

    return Agent(ScriptedModel.repeat(reply), "You calculate.", name="clerk")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of two evaluations of the same rows."""
    folder = tmp_path_factory.mktemp("evaluations")
    paths = [folder / "before.jsonl", folder / "after.jsonl"]
    for path, other in zip(paths, ("2", "3"), strict=True):
        evaluate_sync(clerk(other), ROWS, [exact], out=path)
    return paths


def test_rows_have_their_runs_and_the_rows_of_another_version(serve: Serve, files: list[Path], tmp_path: Path) -> None:
    url = serve(LocalSource([clerk("2")], evaluations=files))

    def get(path: str, **query: str) -> httpx2.Response:
        return httpx2.get(f"{url}api/{path}", params=query, timeout=LONG, verify=False)

    listed = get("overview").json()["evaluations"]
    assert [(each["name"], each["runs"], each["failed"]) for each in listed] == [(str(path), 4, 1) for path in files]
    before, after = map(str, files)
    view = get("evaluation", name=after, before=before).json()
    assert [row["scores"]["exact"][0] for row in view["rows"]] == [0, 1, 0, 1]
    assert view["rows"][0]["before"]["output"] == "2" and view["differences"][0]["worse"] == 1
    runs = [row["run"] for row in view["rows"]]
    for run, state in zip(runs, ("finished", "finished", "failed", "finished"), strict=True):
        assert get("run", id=run).json()["status"] == state
    assert "no network" in get("run", id=runs[2]).json()["error"]
    assert get("evaluation", name="other").status_code == get("evaluation", name=after, before="x").status_code == 404
    assert get("evaluation").status_code == 400
    with pytest.raises(EvaluationError):
        LocalSource(evaluations=[tmp_path])


def test_the_scores_of_an_evaluation_are_computed_once(
    serve: Serve, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    summary = EvaluationReport.summary

    def counted(report: EvaluationReport, score: str, tag: str | None = None) -> Any:
        computed.append(score)
        return summary(report, score, tag)

    monkeypatch.setattr(EvaluationReport, "summary", counted)
    url = serve(LocalSource([clerk("2")], evaluations=files))
    # The page asks for the overview again with every run that starts.
    answers = [httpx2.get(f"{url}api/overview", timeout=LONG, verify=False).json() for _ in range(3)]
    assert answers[0]["evaluations"] == answers[2]["evaluations"] and computed == ["exact"] * len(files)


def test_a_person_finds_the_rows_with_the_lowest_score_and_their_runs(
    page: Page, serve: Serve, files: list[Path]
) -> None:
    from playwright.sync_api import expect

    url = serve(LocalSource([clerk("2")], evaluations=files))
    page.goto(f"{url}#/")
    page.get_by_role("link", name="2 evaluations").click()
    page.get_by_role("link", name="after.jsonl").click()
    rows = page.locator(".rows-of-evaluation tbody tr")
    expect(rows).to_have_count(4)
    assert page.title() != "owned" and page.locator("main img, main script").count() == 0
    page.get_by_role("button", name="exact").click()
    expect(rows.first).to_contain_text("one")
    page.get_by_role("button", name="exact").click()
    expect(page.get_by_role("columnheader", name="exact")).to_have_attribute("aria-sort", "descending")
    expect(rows.first).to_contain_text("<img src=x")
    page.get_by_label("Failed").check()
    expect(rows).to_have_count(1)
    page.get_by_label("Failed").uncheck()
    page.locator("main").get_by_label("Tag").select_option("sums")
    expect(rows).to_have_count(2)
    page.get_by_label("Compare with").select_option(label=str(files[0]))
    page.get_by_label("Changed").check()
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("1 → 0")
    rows.first.get_by_role("link", name="3").click()
    expect(page.locator("main")).to_contain_text("You calculate.")
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto(f"{url}#/evaluation/{str(files[1]).replace('/', '%2F')}")
    expect(rows).to_have_count(4)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_command_opens_evaluations_and_folders(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentkit.cli.app import app
    from agentkit.inspector import local_page

    opened: list[tuple[Any, str]] = []
    monkeypatch.setattr(local_page, "serve_locally", lambda source, where, **more: opened.append((source, where)))
    for name in (str(files[0]), str(files[0].parent)):
        assert CliRunner().invoke(app, ["inspect", name]).exit_code == 0
        assert opened[-1][1].startswith("/evaluation/")
    journals = f"{files[0]}.runs"
    assert CliRunner().invoke(app, ["inspect", journals]).exit_code == 0 and opened[-1][1].startswith("/run/")
    # An empty folder is an error: its name may be a wrong name of a conversation.
    assert CliRunner().invoke(app, ["inspect", str(tmp_path)]).exit_code == 1 and len(opened) == 3
