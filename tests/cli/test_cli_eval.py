"""`agentkit eval`: from a configuration file to a table of scores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.cli.conftest import MAIN, Run
from tests.model_evaluation.evaluation_servers import answers, likely, texts_of
from tests.servers import ChatServer, completion, sends

SUMS = """
from opencompass.openicl.icl_prompt_template import PromptTemplate
from opencompass.openicl.icl_retriever import FixKRetriever, ZeroRetriever
from opencompass.openicl.icl_inferencer import GenInferencer
from opencompass.openicl.icl_evaluator import AccEvaluator

datasets = [
    dict(
        abbr=name, path=name,
        reader_cfg=dict(input_columns=['question'], output_column='answer'),
        infer_cfg=dict(
            prompt_template=dict(type=PromptTemplate, template=prompt + 'Q: {question}', ice_token='</E>'),
            ice_template=dict(type=PromptTemplate, template='Q: {question} A: {answer}'),
            retriever=retriever, inferencer=dict(type=GenInferencer)),
        eval_cfg=dict(evaluator=dict(type=AccEvaluator)))
    for name, prompt, retriever in [
        ('few', '</E>', dict(type=FixKRetriever, fix_id_list=[0])), ('zero', '</E>', dict(type=ZeroRetriever))]
]
"""
MOOD = """
datasets:
  - abbr: mood
    path: mood.csv
    reader_cfg: {input_columns: [text], output_column: label}
    infer_cfg:
      prompt_template: {type: PromptTemplate, template: {good: "{text} good", bad: "{text} bad"}}
      inferencer: {type: PPLInferencer}
"""


@pytest.fixture
def sums(folder: Path) -> Path:
    """A configuration with two datasets, and their rows next to it."""
    (folder / "sums.py").write_text(SUMS)
    for name in ("few", "zero"):
        (folder / name).mkdir()
        (folder / name / "test.csv").write_text("question,answer\n2+2,4\n3+3,6\n")
    (folder / "few" / "train.jsonl").write_text('{"question": "1+1", "answer": "2"}\n')
    return folder


def right(texts: list[str]) -> str:
    return str(2 * int(texts[-1][-1]))


def test_every_dataset_of_a_file_is_run_and_scored(
    run: Run, sums: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("eval", answers(lambda texts: right(texts) if "1+1" in texts[-1] or "2+2" in texts[-1] else "?"))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    done = run("eval", "sums.py", "--model", "eval", "--out", "answers", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["model"] == "eval"
    shown = [(one["dataset"], one["rows"], one["failed"], one["score"]) for one in found["datasets"]]
    assert shown == [("few", 2, 0, 1.0), ("zero", 2, 0, 0.5)]
    assert "Q: 1+1 A: 2\nQ: 2+2" in [texts_of(request)[0] for request in server.to("eval")]  # in any order
    again = run("eval", "sums.py", "--model", "eval", "--out", "answers")
    assert again.stdout.splitlines()[1].split() == ["few", "2", "0", "2", "1.0000", "0", "0"]
    assert f"few: 0 rows sent now, 2 answers reused from {Path('answers', 'few.jsonl')}" in again.stderr
    assert len(server.to("eval")) == 4  # no row was run again


def test_rows_are_named_with_their_splits(run: Run, sums: Path) -> None:
    named = ("--rows", "train=few/train.jsonl", "--rows", "test=few/test.csv")
    done = run("eval", "sums.py", "--dataset", "few", "--score", "exact", "--json", *named)
    assert (done.exit_code, json.loads(done.stdout)["datasets"][0]["score"]) == (0, 0.0), done.stderr
    (sums / "all.json").write_text('{"train": [{"question": "q", "answer": "a"}], "test": [{"question": "p"}]}')
    refused = run("eval", "sums.py", "-d", "few", "--rows", "all.json")
    assert refused.exit_code == 1
    assert "no row of test has a column 'answer', so that answers cannot be scored" in refused.stderr
    done = run("eval", "sums.py", "-d", "few", "--rows", "all.json", "--score", "none")
    assert done.exit_code == 0 and done.stdout.splitlines()[1].split()[3:5] == ["0", "none"]


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (
            ("--rows", "few/test.csv"),
            "--rows few:test=FILE, name a folder with a folder of splits per dataset, or select one dataset with "
            "--dataset; datasets: few, zero",
        ),
        (("--rows", "few/test.csv", "-d", "few"), "shows row 0, but the training split is empty"),
        (("--dataset", "fewer"), "unknown dataset 'fewer'; did you mean 'few'"),
        (("--score", "exakt"), "did you mean 'exact'"),
        (
            ("-d", "zero", "--rows", "few/test.csv", "--rows", "few/train.jsonl"),
            "several files require the names of",
        ),
        (("-d", "zero", "--rows", "test=few/test.csv", "--rows", "test=few/test.csv"), "duplicate split 'test'"),
        (("--rows", "fewer:test=few/test.csv"), "unknown dataset 'fewer'; did you mean 'few'"),
        (("-d", "zero", "--rows", "nowhere.csv"), "nowhere.csv: the file or folder does not exist"),
        (("--rows", "nowhere"), "agentkit: --rows nowhere: the file or folder does not exist"),
        (("-d", "zero", "--rows", "nowhere"), "agentkit: --rows nowhere: the file or folder does not exist"),
        (("--rows", "few=nowhere"), "nowhere: the file or folder does not exist"),
        (("--out", "sums.py"), "--out sums.py: 2 datasets require a folder, not a file; name a folder"),
        (("--out", "sums.py/inner"), "inner: the folder cannot be created"),
    ],
)
def test_invalid_arguments_are_reported_before_any_request(
    run: Run, sums: Path, arguments: tuple[str, ...], reported: str
) -> None:
    done = run("eval", "sums.py", *arguments)
    assert done.exit_code == 1 and reported in done.stderr, done.stderr
    assert done.stdout == ""


def test_the_problems_of_several_datasets_are_reported_together(run: Run, sums: Path) -> None:
    for name in ("few", "zero"):
        (sums / name / "test.csv").write_text("quest\nx\n")
    done = run("eval", "sums.py")
    assert done.exit_code == 1
    expected = "dataset zero: rows: test.question: no row has this column"
    assert "dataset few: " in done.stderr and expected in done.stderr


def test_rows_without_an_answer_set_the_exit_code_and_the_other_rows_stay(
    run: Run, sums: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = answers(right)
    bad = sends({"error": {"message": "no"}}, 400)
    server.on("half", lambda asked: (bad if "3+3" in texts_of(asked)[-1] else good)(asked))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    command = ("eval", "sums.py", "-d", "zero", "-m", "half", "--out", "out.jsonl", "--concurrency", "1")
    for _ in range(2):  # the second run sends only the refused row
        done = run(*command)
        assert done.exit_code == 1 and "1 of 2 rows failed: row 1" in done.stderr
        assert done.stdout.splitlines()[1].split()[:5] == ["zero", "2", "1", "1", "1.0000"]
    server.on("half", good)
    done = run(*command)
    assert done.exit_code == 0 and len(server.to("half")) == 4
    assert done.stdout.splitlines()[1].split()[:5] == ["zero", "2", "0", "2", "1.0000"]


def test_truncated_replies_are_reported_with_the_limit_and_another_file(
    run: Run, sums: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = sends(completion("", finish_reason="length", reasoning_content="Hm"))
    server.on("thinks", lambda asked: (cut if "3+3" in texts_of(asked)[-1] else answers(right))(asked))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    command = ("eval", "sums.py", "-d", "zero", "-m", "thinks", "--concurrency", "1")
    for options, after in (
        (("--out", "out.jsonl"), " and another --out: this file contains answers within the old limit"),
        ((), ""),
    ):
        done = run(*command, *options)
        assert done.exit_code == 1 and "row 1: ModelReplyCut: " in done.stderr
        assert f"Cut replies need a larger max_out_len in the configuration{after}\n" in done.stderr
        assert "Run the evaluation again" not in done.stderr
    own = SUMS.replace("dict(type=GenInferencer)", "dict(type=GenInferencer, max_out_len=512)")
    (sums / "sums.py").write_text(own)
    server.on("thinks", answers(right))
    refused = run(*command, "--out", "out.jsonl")
    assert refused.exit_code == 1 and "contains the answers of another evaluation" in refused.stderr
    assert run(*command, "--out", "other.jsonl").exit_code == 0


def test_labels_are_scored_by_a_model_of_raw_completions(
    run: Run, folder: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mood.yaml").write_text(MOOD)
    (folder / "mood.csv").write_text('text,label\n"I laugh,",good\n"I cry,",bad\n')
    refused = run("eval", "mood.yaml")
    assert refused.exit_code == 1 and "log probabilities" in refused.stderr
    refused = run("eval", "mood.yaml", "--model", "offline", "--chat-template", "base")
    advice = "`offline` cannot score texts: pass a completions server too, such as --model http://localhost:"
    assert advice in refused.stderr
    server.on("ppl", likely(lambda token, before: -0.1 if (token == " good") == ("laugh" in before) else -3.0))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    done = run("eval", "mood.yaml", "--model", "ppl", "--chat-template", "base", "--json")
    assert (done.exit_code, json.loads(done.stdout)["datasets"][0]["score"]) == (0, 1.0), done.stderr


def test_the_meta_template_of_the_configuration_is_used_if_the_model_has_this_type(
    run: Run, sums: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta = "dict(round=[dict(role='HUMAN', begin='<h>'), dict(role='BOT', begin='<b>', generate=True)])"
    (sums / "own.py").write_text(
        SUMS.replace(
            "prompt + 'Q: {question}'",
            "dict(round=[dict(role='HUMAN', prompt='{question}'), dict(role='BOT', prompt='{answer}')])",
        ).replace(
            "template='Q: {question} A: {answer}'",
            "template=dict(round=[dict(role='HUMAN', prompt='{question}'), dict(role='BOT', prompt='{answer}')])",
        )
        + f"\nmodels = [dict(abbr='m', meta_template={meta})]\n"
    )
    server.on("metal", answers(lambda texts: "4"))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    done = run("eval", "own.py", "-d", "zero", "-m", "metal", "--chat-template", "base")
    assert done.exit_code == 0, done.stderr
    assert sorted(texts_of(asked)[0] for asked in server.to("metal")) == ["<h>2+2<b>", "<h>3+3<b>"]
    done = run("eval", "own.py", "-d", "zero", "-m", "metal")
    assert "no meta_template of the configuration is used" in done.stderr
    assert texts_of(server.to("metal")[-1]) == ["3+3"] or texts_of(server.to("metal")[-1]) == ["2+2"]


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_evaluation_stopped_by_ctrl_c_continues_with_the_remaining_rows(
    run: Run, sums: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f'{{"question": "{one}+{one}", "answer": "{2 * one}"}}\n' for one in range(1, 9))
    (sums / "many.jsonl").write_text(rows)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    good = answers(right)
    stopped = threading.Event()
    server.on("slow", lambda asked: (len(server.to("slow")) < 3 or stopped.wait(60), good(asked))[1])
    command = ["eval", "sums.py", "-d", "zero", "-m", "slow", "-r", "test=many.jsonl", "--out", "kept.jsonl"]
    command += ["--concurrency", "1", "--json"]
    first = subprocess.Popen(
        [sys.executable, "-c", MAIN, *command], cwd=sums, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while len(server.to("slow")) < 3 and first.poll() is None:
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    printed, noted = first.communicate(timeout=60)
    stopped.set()
    assert (first.returncode, printed) == (130, ""), noted
    assert "stopped: 2 of 8 rows were sent; the answers are in kept.jsonl, and the same command resumes" in noted
    kept = len((sums / "kept.jsonl").read_text().splitlines()) - 1
    before = len(server.to("slow"))
    server.on("slow", good)
    done = run(*command)
    assert (done.exit_code, json.loads(done.stdout)["datasets"][0]["score"]) == (0, 1.0)
    assert 0 < kept < 8 and len(server.to("slow")) - before == 8 - kept


def test_each_of_several_datasets_receives_its_rows(run: Run, sums: Path) -> None:
    named = ("--rows", "few:train=few/train.jsonl", "--rows", "few:test=zero/test.csv")
    done = run("eval", "sums.py", *named, "--json")
    assert done.exit_code == 0, done.stderr
    few, zero = json.loads(done.stdout)["datasets"]
    assert (few["rows"], zero["rows"]) == (2, 2)
    assert [(one["row"], one["gold"], one["score"]) for one in few["results"]] == [(0, "4", 0.0), (1, "6", 0.0)]


def test_prompts_are_shown_without_a_request(
    run: Run, sums: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("unasked", answers(right))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    done = run("eval", "sums.py", "--model", "unasked", "--show", "1")
    assert (done.exit_code, done.stdout) == (
        0,
        "few, row 0:\nuser: Q: 1+1 A: 2\nQ: 2+2\n\nzero, row 0:\nuser: Q: 2+2\n",
    ), done.stderr
    done = run("eval", "sums.py", "-d", "zero", "-m", "unasked", "--chat-template", "qwen", "--show", "9", "--json")
    assert [one["row"] for one in json.loads(done.stdout)] == [0, 1]
    assert json.loads(done.stdout)[0]["prompt"].endswith("Q: 2+2<|im_end|>\n<|im_start|>assistant\n")
    assert not server.to("unasked")


def test_the_settings_of_the_file_s_model_are_followed_or_named(
    run: Run, sums: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = "temperature=0.7, generation_kwargs=dict(top_p=0.5, seed=1), max_out_len=16"
    entry = f"dict(type='X', abbr='m', path='p', {sampling})"
    (sums / "own.py").write_text(f"{SUMS}\nmodels = [{entry}]\n")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    server.on("own", answers(right))
    done = run("eval", "own.py", "-d", "zero", "-m", "own")
    assert "ignored settings of the configuration's model: path, generation_kwargs.seed" in done.stderr
    assert "model own: temperature=0.7, top_p=0.5, max_tokens=16" in done.stderr
    body = server.to("own")[0].body
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.7, 0.5, 16)
    run("eval", "own.py", "-d", "zero", "-m", "own", "--temperature", "0.1")
    assert server.to("own")[-1].body["temperature"] == 0.1
    (sums / "own.py").write_text(f"{SUMS}\nmodels = [{entry}, dict(abbr='n')]\n")
    assert "has 2 models: their settings are ignored" in run("eval", "own.py", "-d", "zero", "-m", "own").stderr


def test_an_unknown_evaluator_is_an_error_and_a_missing_evaluator_is_reported(run: Run, sums: Path) -> None:
    (sums / "odd.py").write_text(SUMS.replace("AccEvaluator", "MATHEvaluator"))
    done = run("eval", "odd.py")
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr.count("pass --score exact, choice or numeric; --score none stores the answers") == 2
    (sums / "bare.py").write_text(SUMS.replace("eval_cfg=dict(evaluator=dict(type=AccEvaluator))", ""))
    done = run("eval", "bare.py", "-d", "zero")
    assert done.exit_code == 0 and "zero: without an eval_cfg, nothing is scored" in done.stderr


def test_an_unreachable_server_is_reported_once(run: Run, sums: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    done = run("eval", "sums.py", "-m", "gone")
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr.count("no connection") == 1 and "--out" not in done.stderr
    assert (
        "is the server running? Check that base_url (OPENAI_BASE_URL) ends where /chat/completions begins"
        in done.stderr
    )


def test_a_folder_has_a_folder_of_rows_for_each_dataset(run: Run, sums: Path) -> None:
    for name in ("few", "zero"):
        (sums / "root" / name).mkdir(parents=True)
        for file in (sums / name).iterdir():
            file.rename(sums / "root" / name / file.name)
    done = run("eval", "sums.py", "--rows", "root", "--json")
    assert done.exit_code == 0, done.stderr
    assert [(one["dataset"], one["rows"]) for one in json.loads(done.stdout)["datasets"]] == [("few", 2), ("zero", 2)]
    assert "the offline model answers, so a score has no meaning; name a model with --model" in done.stderr
    (sums / "root" / "zero" / "test.csv").unlink()
    (sums / "root" / "zero").rmdir()
    done = run("eval", "sums.py", "--rows", "root")
    assert done.exit_code == 1 and f"dataset zero: missing folder {Path('root', 'zero')}" in done.stderr


def test_a_dataset_accepts_a_folder_of_its_splits_or_a_file_of_its_rows(run: Run, sums: Path) -> None:
    (sums / "few").rename(sums / "own")
    done = run("eval", "sums.py", "--rows", "few=own", "--rows", "zero=zero/test.csv", "--json")
    assert done.exit_code == 0, done.stderr
    assert [(one["dataset"], one["rows"]) for one in json.loads(done.stdout)["datasets"]] == [("few", 2), ("zero", 2)]
    done = run("eval", "sums.py", "--rows", "few=own", "--rows", "few=own")
    assert done.exit_code == 1 and "duplicate rows of 'few'" in done.stderr
    (sums / "test.py").write_text(SUMS.replace("('zero'", "('test'"))  # a dataset with the name of a split
    done = run("eval", "test.py", "-d", "test", "--rows", "test=zero/test.csv", "--rows", "train=own/train.jsonl")
    assert done.exit_code == 0, done.stderr


def test_prompts_are_shown_with_a_chat_template_without_a_key(run: Run, sums: Path) -> None:
    done = run("eval", "sums.py", "-d", "zero", "--show", "1", "--chat-template", "qwen")
    assert done.exit_code == 0 and "Q: 2+2<|im_end|>" in done.stdout, done.stderr
    done = run("eval", "sums.py", "-d", "zero", "--chat-template", "qwen")
    assert done.exit_code == 1 and "missing API key" in done.stderr
    (sums / "mood.yaml").write_text(MOOD)
    (sums / "mood.csv").write_text("text,label\nWarm.,good\n")
    refused = run("eval", "mood.yaml")
    assert refused.exit_code == 1 and "--chat-template NAME, or `base`" in refused.stderr
    done = run("eval", "mood.yaml", "--show", "1", "--chat-template", "base")
    assert (done.exit_code, done.stdout.count("Warm.")) == (0, 2), done.stderr
    unnamed = run("eval", "mood.yaml", "--show", "1")
    assert (unnamed.exit_code, unnamed.stdout) == (0, done.stdout), unnamed.stderr
    assert "without a chat template" in unnamed.stderr


def test_an_attempt_without_an_answer_does_not_claim_the_file(run: Run, sums: Path, server: ChatServer) -> None:
    ask = ("eval", "sums.py", "-d", "zero", "--out", "answers.jsonl", "--model")
    assert run(*ask, "http://127.0.0.1:9/v1#gone").exit_code == 1
    server.on("there", answers(right))
    done = run(*ask, f"{server.url}#there")
    assert done.exit_code == 0, done.stderr
    kept = (sums / "answers.jsonl").read_text().splitlines()
    assert len(kept) == 3 and '"there"' in kept[0]
    done = run(*ask, f"{server.url}#other")
    assert done.exit_code == 1 and "contains the answers of another evaluation: model was 'there'" in done.stderr


def test_rows_are_read_from_path_and_name(run: Run, sums: Path) -> None:
    (sums / "set").mkdir()
    (sums / "few").rename(sums / "set" / "few")
    (sums / "mmlu.py").write_text(SUMS.replace("path=name", "path='set', name=name"))
    done = run("eval", "mmlu.py", "-d", "few", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["datasets"][0]["rows"] == 2, done.stderr
    refused = run("eval", "mmlu.py")
    assert refused.exit_code == 1 and "dataset zero: its path and name 'set/zero' are no folder" in refused.stderr


def test_the_path_of_a_dataset_leads_nowhere_outside_of_the_root(run: Run, sums: Path) -> None:
    inner = sums / "inner"
    (inner / "links").mkdir(parents=True)
    (inner / "few").symlink_to(sums / "few")
    (inner / "links" / "test.csv").symlink_to(next((sums / "few").iterdir()))
    for path in (str(sums / "few"), "../few", "few", "links"):
        (inner / "sums.py").write_text(SUMS.replace("path=name", f"path={path!r}"))
        refused = run("eval", "inner/sums.py", "-d", "few", "--show", "1")
        assert refused.exit_code == 1, path
        assert "is outside of" in refused.stderr
        if path != "links":
            done = run("eval", "inner/sums.py", "-d", "few", "--show", "1", "--root", ".")
            assert done.exit_code == 0, done.stderr


def test_a_limit_runs_the_first_rows_and_the_same_file_continues_with_the_rest(
    run: Run, sums: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("first", answers(right))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    command = ("eval", "sums.py", "-m", "first", "--out", "kept", "--json", "--rate", "1000")
    done = run(*command, "--limit", "1")
    assert [one["rows"] for one in json.loads(done.stdout)["datasets"]] == [1, 1], done.stderr
    done = run(*command)
    assert [(one["rows"], one["reused"]) for one in json.loads(done.stdout)["datasets"]] == [(2, 1), (2, 1)]
    assert run(*command, "--rate", "0").exit_code == 1


def test_a_misspelt_column_is_named_before_any_request(run: Run, sums: Path) -> None:
    (sums / "odd.py").write_text(SUMS.replace("prompt + 'Q: {question}'", "prompt + 'Q: {qestion}'"))
    for options in (("--show", "1"), ()):
        done = run("eval", "odd.py", "-d", "zero", *options)
        assert done.exit_code == 0
        assert done.stderr.count("prompt_template: `{qestion}` is not a column") == 1
        assert "the input column 'question' is not in it; did you mean `{question}`?" in done.stderr
    (sums / "odd.py").write_text(SUMS.replace("A: {answer}", "A: {anser}"))
    done = run("eval", "odd.py", "-d", "few", "--show", "1")
    assert "ice_template: `{anser}` is not a column" in done.stderr and "prompt_template:" not in done.stderr


def test_a_scorer_of_texts_names_the_token_that_is_written_and_not_read(
    run: Run, folder: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mood.yaml").write_text(MOOD)
    (folder / "mood.csv").write_text('text,label\n"I laugh,",good\n')
    server.on("quiet", likely(lambda token, before: -1.0))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    command = ("eval", "mood.yaml", "--model", "quiet", "--chat-template", "qwen")
    done = run(*command)
    shown = "model quiet: log probabilities of texts; one token per text is generated and ignored\n"
    assert shown in done.stderr and "0.8" not in done.stderr
    assert [int(number) > 0 for number in done.stdout.splitlines()[1].split()[-2:]] == [True, True]
    refused = run(*command, "--temperature", "0.3")
    assert refused.exit_code == 1 and "--temperature: texts are scored and none is generated" in refused.stderr
    assert len(server.to("quiet")) == 2


@pytest.mark.parametrize("named", [("--chat-template", "base"), ("--model", "mini"), ("--model-name", "base")])
def test_labels_without_a_server_are_not_sent_to_a_model_that_cannot_score(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, named: tuple[str, str]
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (folder / "mood.yaml").write_text(MOOD)
    (folder / "mood.csv").write_text("text,label\nI laugh,good\n")
    done = run("eval", "mood.yaml", *named)
    assert done.exit_code == 1 and "--model http://localhost:8000/v1#NAME --chat-template base" in done.stderr
    assert "`--model offline` scores no labels" in done.stderr and "offline model" not in done.stderr
