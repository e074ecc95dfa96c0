"""`agentkit eval --score`, and rows of datasets that are not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.model_evaluation.evaluation_servers import answers, texts_of
from tests.servers import ChatServer

TWO = """
datasets:
  - abbr: gsm8k
    reader_cfg: {input_columns: [question], output_column: answer}
    infer_cfg: {prompt_template: {type: PromptTemplate, template: "Sum: {question}"}}
    eval_cfg:
      evaluator: {type: Gsm8kEvaluator}
      pred_postprocessor: {type: gsm8k_postprocess}
      dataset_postprocessor: {type: gsm8k_dataset_postprocess}
  - abbr: arc
    reader_cfg: {input_columns: [question], output_column: answer}
    infer_cfg: {prompt_template: {type: PromptTemplate, template: "Letter: {question}"}}
    eval_cfg:
      evaluator: {type: AccEvaluator}
      pred_postprocessor: {type: match_answer_pattern, answer_pattern: "ANSWER: ([A-D])"}
"""
ROWS = ("--rows", "gsm8k:test=gsm8k.jsonl", "--rows", "arc:test=arc.csv")


@pytest.fixture
def two(folder: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with a dataset whose `eval_cfg` is followed, and a dataset whose `eval_cfg` is not."""
    (folder / "two.yaml").write_text(TWO)
    (folder / "gsm8k.jsonl").write_text(json.dumps({"question": "1+1", "answer": "so\n#### 2"}))
    (folder / "arc.csv").write_text("question,answer\nwhich,B\n")
    reply = "The answer is 2\n\nQuestion: What is 5+6?\nThe answer is 11"
    server.on("two", answers(lambda texts: reply if "Sum" in texts[-1] else "ANSWER: B"))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    return folder


def scores(stdout: str) -> dict[str, float | None]:
    return {one["dataset"]: one["score"] for one in json.loads(stdout)["datasets"]}


def test_a_score_replaces_an_eval_cfg_that_is_not_followed(run: Run, two: Path) -> None:
    ask = ("eval", "two.yaml", "--model", "two", "--json", *ROWS)
    refused = run(*ask)
    assert refused.exit_code == 1 and "dataset arc: " in refused.stderr and "dataset gsm8k" not in refused.stderr
    assert "pass --score choice" in refused.stderr and "score='" not in refused.stderr
    done = run(*ask, "--score", "choice")
    assert scores(done.stdout) == {"gsm8k": 1.0, "arc": 1.0}, done.stderr
    assert "gsm8k: scored by its eval_cfg; --score gsm8k=choice overrides it" in done.stderr
    done = run(*ask, "--score", "choice", "--score", "gsm8k=numeric")
    assert scores(done.stdout) == {"gsm8k": 0.0, "arc": 1.0} and "scored by" not in done.stderr
    done = run(*ask, "--score", "none")
    assert scores(done.stdout) == {"gsm8k": None, "arc": None}
    done = run(*ask, "--score", "arc=none")
    assert scores(done.stdout) == {"gsm8k": 1.0, "arc": None}


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (("ark=choice",), "--score ark=choice: unknown dataset 'ark'; did you mean 'arc'"),
        (("arc=choise",), "did you mean 'choice'"),
        (("choice", "exact"), "--score exact: duplicate score; for one dataset write DATASET=exact"),
    ],
)
def test_unknown_and_duplicate_scores_are_errors(run: Run, two: Path, given: tuple[str, ...], reported: str) -> None:
    done = run("eval", "two.yaml", *ROWS, *(part for one in given for part in ("--score", one)))
    assert done.exit_code == 1 and reported in done.stderr, done.stderr


@pytest.mark.parametrize("other", ["arc:test=arc.csv", "arc=nowhere", "arc:test=nowhere.csv"])
def test_rows_of_a_dataset_that_is_not_run_are_ignored(run: Run, two: Path, server: ChatServer, other: str) -> None:
    before = len(server.to("two"))
    ask = ("eval", "two.yaml", "-m", "two", "-d", "gsm8k", "--json", "--score", "arc=choice")
    done = run(*ask, "--rows", "gsm8k:test=gsm8k.jsonl", "--rows", other)
    assert scores(done.stdout) == {"gsm8k": 1.0}, done.stderr
    assert [texts_of(asked) for asked in server.to("two")[before:]] == [["Sum: 1+1"]]
    wrong = run(*ask, "--rows", "ark:test=arc.csv")
    assert wrong.exit_code == 1 and "unknown dataset 'ark'; did you mean 'arc'" in wrong.stderr


def test_a_retriever_that_compares_vectors_names_the_option_for_its_model(run: Run, two: Path) -> None:
    near = "{retriever: {type: TopkRetriever, ice_num: 1}, ice_template: {template: x}, prompt_template: {"
    (two / "near.yaml").write_text(TWO.replace("{prompt_template: {", near))
    done = run("eval", "near.yaml", *ROWS, "--score", "choice")
    assert done.exit_code == 1 and "TopkRetriever compares vectors; name its model with --embedder" in done.stderr
    assert "pass `embedder`" not in done.stderr


def test_the_help_describes_the_input_of_each_score(run: Run) -> None:
    told = " ".join(run("eval", "--help").stdout.replace("│", " ").split())
    assert "the last letter after" in told and "Patterns of the file are ignored" in told
