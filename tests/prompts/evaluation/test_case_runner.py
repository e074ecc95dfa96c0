"""The runner of conformance cases: problems of evaluation prompts, and counts of cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import opencompass, opencompass_configs
from tests.conformance.run import main

ROUND = {"round": [{"role": "HUMAN", "prompt": "{question}"}, {"role": "BOT", "prompt": "{answer}"}]}
SAID = [{"section": "round", "pos": "begin"}, {"role": "HUMAN", "prompt": "q"}, {"role": "BOT", "prompt": ""}]
CASE: dict[str, Any] = {
    "id": "own",
    "op": "pipeline",
    "stage": "promptlist",
    "mode": "gen",
    "template": {"template": ROUND},
    "ice_template": None,
    "retriever": {"type": "ZeroRetriever"},
    "example": {"question": "q", "answer": "a"},
    "train_examples": None,
    "output_type": "PromptList",
    "expect": {"output": [*SAID, ""]},
    "required": True,
}
FINAL = {
    **CASE,
    "stage": "final",
    "parser": "lm",
    "meta_template": None,
    "output_type": "str",
    "expect": {"output": "q"},
}


def problems(case: dict[str, Any]) -> list[str | None]:
    return [problem for _, problem in opencompass.check(case, Path())]


def test_the_comparison_ignores_only_markers_and_empty_texts() -> None:
    assert problems(CASE) == problems(FINAL) == [None]
    (wrong,) = problems({**CASE, "expect": {"output": [{"role": "HUMAN", "prompt": "Q"}, SAID[2]]}})
    assert wrong is not None and wrong.startswith("expected [{'role': 'HUMAN', 'prompt': 'Q'}")
    (kind,) = problems({**CASE, "output_type": "list"})
    assert kind is not None and "PromptList" in kind
    (raised,) = problems({**CASE, "template": {"template": 5}})
    assert raised is not None and raised.startswith("InContextError: ")
    assert problems({**CASE, "required": False}) == []


def test_the_runner_reads_python_values_without_a_json_type() -> None:
    labels = {"__pairs__": [[0, "{question} no"], [1, {"round": [{"role": "BOT", "prompt": "yes"}]}]]}
    scored = {**CASE, "mode": "ppl", "template": {"template": labels}, "label": 0, "output_type": "str"}
    assert problems({**scored, "expect": {"output": "q no"}}) == [None]
    parsed = {
        "id": "own",
        "op": "parse",
        "stage": "final",
        "mode": "ppl",
        "parser": "lm",
        "meta_template": {},
        "required": True,
    }
    prompt = {"__tuple__": ["x", {"__promptlist__": ["y", {"role": "HUMAN", "prompt": "z"}]}]}
    assert problems({**parsed, "prompt": prompt, "expect": {"output": ["x", "y\nz"]}, "output_type": "list"}) == [None]


def test_each_final_is_counted_but_an_unchanged_prompt_only_if_it_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "meta_templates.json").write_text('{"none_lm": {"parser": "lm", "meta_template": null}}', "utf-8")
    result = {
        "row": 0,
        "promptlist": "q?",
        "promptlist_type": "str",
        "final": {
            "none_lm:gen": {"same_as_promptlist": True},
            "none_lm:ppl": {"output": "q?", "output_type": "str"},
            "gone:gen": {"error": {"type": "KeyError", "message": "x"}},
        },
    }
    case = {
        **{key: CASE[key] for key in ("id", "mode", "ice_template", "retriever", "required")},
        "template": {"type": "PromptTemplate", "template": "{question}?"},
        "inferencer": {"type": "GenInferencer"},
        "reader": {"input_columns": ["question"], "output_column": "answer"},
        "ice_ids": [],
        "train_examples": [],
        "rows": [CASE["example"]],
        "results": [result],
    }
    assert list(opencompass_configs.check(case, tmp_path)) == [("own#0:None:none_lm:ppl", None)]
    result["promptlist"] = "q!"
    found = dict(opencompass_configs.check(case, tmp_path))
    assert found["own#0:None:promptlist"] == "expected 'q!', got 'q?'"
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps(case) + "\n", "utf-8")
    assert main(["opencompass_configs", str(cases)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed"
