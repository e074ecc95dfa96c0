"""`agentkit optimise`: the parts of an agent, the table, the diff, and the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

pytest.importorskip("gepa")

MODULE = """
from agentkit.agent_files import load_agent
from agentkit import ScriptedModel

def score(row, result):
    return "well" in result.composition.system.text

reply = ScriptedModel.repeat("You help well.")
desk = load_agent("desk.yaml", model=reply).agent
"""


def test_texts_are_searched_shown_and_written_with_an_option(run: Run, folder: Path) -> None:
    (folder / "prompts").mkdir()
    prompt = folder / "prompts" / "persona.prompt.j2"
    prompt.write_text("You help.\n", "utf-8")
    (folder / "desk.yaml").write_text("model: offline\nlayers: prompts\n", "utf-8")
    (folder / "desk.py").write_text(MODULE, "utf-8")
    (folder / "cases.yaml").write_text("\n".join([f"- input: question {number}" for number in range(6)]), "utf-8")
    listed = run("optimise", "--agent", "desk.yaml", "--list")
    assert listed.exit_code == 0 and listed.stdout == "system.persona: You help.\n", listed
    base = ("optimise", "--agent", "./desk.py:desk", "--rows", "cases.yaml", "--score", "./desk.py:score")
    options = ("--part", "system.persona", "--proposals", "3")
    shown = run(*base, *options)
    assert shown.exit_code == 0 and "1 proposals, 0 refused; changed: system.persona" in shown.stdout, shown
    assert "+You help well." in shown.stdout and prompt.read_text("utf-8") == "You help.\n"
    written = run(*base, *options, "--apply", "--json")
    assert written.exit_code == 0 and prompt.read_text("utf-8") == "You help well.\n", written
    data = json.loads(written.stdout)
    assert data["failed"] == {"before": 0, "after": 0}
    assert data["changed"] == {"system.persona": "You help well."} and data["scores"]["score"]["after"] == 1
    # All rows have the score 1 now.
    again = run(base[0], "--agent", "desk.yaml", *base[3:], *options, "--apply")
    assert again.exit_code == 1 and "nothing is written" in again.stderr and "changed: none" in again.stdout
    for wrong, problem in (
        ((*base, "--part", "system.personna"), "did you mean 'system.persona'"),
        ((*base, "--part", "system.persona", "--money", "-1"), "budget.money"),
        (base, "--part"),
        (("optimise", "--rows", "cases.yaml"), "--agent"),
    ):
        refused = run(*wrong)
        assert refused.exit_code in (1, 2) and problem in refused.stderr.replace("\n", " "), (wrong, refused)
