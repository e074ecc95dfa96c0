"""Errors of agent files name each invalid value once, with its line and its key, in the words of YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkit.agent_files import AgentFileError, load_agent

GUARD = "expected a function with the decorator @guard, got a function"


def problems(folder: Path, text: str) -> list[str]:
    (folder / "tools.py").write_text("def price(book):\n    return 30\n")
    path = folder / "agent.yaml"
    path.write_text(text)
    with pytest.raises(AgentFileError) as caught:
        load_agent(path)
    return [f"{problem.line}: {problem.message}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("todos: false", ["2: todos: expected true, got false"]),
        ("todos: maybe", ["2: todos: expected true, got 'maybe'"]),
        ("memory: false", ["2: memory: expected true, or keys such as {home: .agentkit}, got false"]),
        ("limits:", ["2: limits: expected a mapping, got null"]),
        ("tools:", ["2: tools: expected a list, got null"]),
        ("layers: true", ["2: layers: expected text, got true"]),
        (
            "guards:\n  - ./tools.py:price\n  - ./tools.py:price",
            [f"3: guards[0]: {GUARD}", f"4: guards[1]: {GUARD}"],
        ),
    ],
)
def test_an_invalid_value_has_its_place_once_and_the_words_of_yaml(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    assert problems(tmp_path, f"model: offline\n{text}\n") == expected


def test_each_invalid_setting_and_each_missing_agent_has_its_line_and_key(tmp_path: Path) -> None:
    text = """\
model:
  name: offline
  settings:
    temperature: hot
    max_tokens: many
    temprature: 1
tools:
  - {agent: none.yaml, name: other, description: Helps.}
"""
    assert problems(tmp_path, text) == [
        "3: model.settings: unknown option 'temprature'; did you mean 'temperature'?",
        "4: model.settings.temperature: expected a number, or None, got str",
        "5: model.settings.max_tokens: expected a whole number, or None, got str",
        f"8: tools[0]: missing file {tmp_path / 'none.yaml'}; check the path",
    ]
