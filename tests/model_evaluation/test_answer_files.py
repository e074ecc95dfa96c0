"""The file of an evaluation contains every answer when it arrives, and an evaluation continues from it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentkit import CompletionModel, OpenAIModel, ScriptedModel
from agentkit.models.model_errors import ScriptExhausted
from agentkit.prompts import evaluation
from agentkit.prompts.evaluation import EvaluationFailed, InContextError
from tests.model_evaluation.evaluation_servers import answers, likely, texts_of
from tests.paths import ROOT
from tests.servers import ChatServer

TURNS = [{"role": "HUMAN", "prompt": "{question}"}, {"role": "BOT", "prompt": "{answer}"}]
ROWS = [{"question": f"q{number}", "answer": f"a{number}"} for number in range(8)]


def cfg(template: Any = None, **inferencer: Any) -> dict[str, Any]:
    infer_cfg = {
        "prompt_template": {"template": template or {"round": TURNS}},
        "inferencer": {"type": "GenInferencer", **inferencer},
    }
    return {"infer_cfg": infer_cfg, "reader_cfg": {"input_columns": ["question"], "output_column": "answer"}}


def right(texts: list[str]) -> str:
    return texts[-1].replace("q", "a")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


async def test_each_answer_is_a_line_with_its_prompt(tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    await evaluation.run(cfg(), ROWS[:2], ScriptedModel(["é\n", "b"]), out=out, concurrency=1)
    head, first, second = lines(out)
    assert (head["agentkit_evaluation"], head["model"], head["inferencer"]) == (1, "scripted", "GenInferencer")
    assert (first["row"], first["answer"], first["ended"]) == (0, "é\n", "stop")
    assert first["prompt"] == [{"role": "user", "content": "q0"}] and second["row"] == 1


async def test_answered_rows_are_not_run_again(server: ChatServer, tmp_path: Path) -> None:
    server.on("again", answers(right))
    model = OpenAIModel("again", base_url=server.url)
    first = await evaluation.run(cfg(), ROWS[:3], model, out=tmp_path / "x", score="exact")
    assert len(server.to("again")) == 3
    second = await evaluation.run(cfg(), ROWS, model, out=tmp_path / "x", score="exact")
    assert sorted(texts_of(asked)[0] for asked in server.to("again")[3:]) == [f"q{number}" for number in range(3, 8)]
    assert (first.score, second.score, len(second.rows)) == (1.0, 1.0, 8)
    assert second.usage.output_tokens == 5 * 5


async def test_only_a_failed_row_is_run_again(tmp_path: Path) -> None:
    from agentkit.models import ModelRequestError

    def model(*replies: Any) -> ScriptedModel:
        return ScriptedModel(list(replies))

    with pytest.raises(EvaluationFailed):
        await evaluation.run(
            cfg(), ROWS[:3], model("a0", ModelRequestError("no"), "a2"), out=tmp_path / "x", concurrency=1
        )
    again = model("a1")
    found = await evaluation.run(cfg(), ROWS[:3], again, out=tmp_path / "x", score="exact")
    assert found.score == 1.0 and [one.context.user_input.input for one in again.requests] == ["q1"]


async def test_a_dialogue_continues_at_the_turn_at_which_it_stopped(tmp_path: Path) -> None:
    made = cfg(type="MultiTurnGenInferencer")
    made["infer_cfg"]["prompt_template"]["type"] = "MultiTurnPromptTemplate"
    row = {"question": ["1", "2", "3"], "answer": ["x", "y", "z"]}
    with pytest.raises(EvaluationFailed) as caught:
        await evaluation.run(made, [row], ScriptedModel(["one", "two"]), out=tmp_path / "x")
    assert [type(error) for error in caught.value.failures.values()] == [ScriptExhausted]
    rest = ScriptedModel(["three"])
    found = await evaluation.run(made, [row], rest, out=tmp_path / "x")
    assert found.rows[0].answers == ("one", "two", "three")
    assert [message.text for message in rest.requests[0].messages] == ["1", "one", "2", "two", "3"]


async def test_scored_labels_are_not_scored_again(server: ChatServer, tmp_path: Path) -> None:
    server.on("scores", likely(lambda token, _: -2.0 if "yes" in token else -1.0))
    made = cfg({"A": "{question} yes", "B": "{question} no"}, type="PPLInferencer")
    model = CompletionModel("scores", "base", base_url=server.url)
    first = await evaluation.run(made, ROWS[:2], model, out=tmp_path / "x")
    second = await evaluation.run(made, ROWS[:2], model, out=tmp_path / "x")
    assert len(server.to("scores")) == 4
    assert [row.labels for row in first.rows] == [row.labels for row in second.rows]


@pytest.mark.parametrize("cut", [1, 7, 40])
async def test_a_row_with_a_truncated_line_is_run_again(tmp_path: Path, cut: int) -> None:
    out = tmp_path / "x"
    await evaluation.run(cfg(), ROWS[:3], ScriptedModel(["a0", "a1", "a2"]), out=out, concurrency=1)
    out.write_bytes(out.read_bytes()[:-cut])
    again = ScriptedModel(["a2"])
    found = await evaluation.run(cfg(), ROWS[:3], again, out=out, score="exact")
    assert found.score == 1.0 and len(again.requests) == 1 and len(lines(out)) == 4


async def test_a_truncated_head_is_written_again(tmp_path: Path) -> None:
    out = tmp_path / "x"
    out.write_bytes(b'{"agentkit_eval')
    await evaluation.run(cfg(), ROWS[:1], ScriptedModel(["a0"]), out=out)
    assert len(lines(out)) == 2


@pytest.mark.parametrize("held", [b'{"my": "data"}\n', b'{"my": "data"}', b"notes\nof mine\n", b"x"])
async def test_a_file_with_other_content_is_not_changed(tmp_path: Path, held: bytes) -> None:
    out = tmp_path / "x"
    out.write_bytes(held)
    with pytest.raises(InContextError) as caught:
        await evaluation.run(cfg(), ROWS, ScriptedModel.repeat("x"), out=out)
    assert caught.value.path == str(out)
    assert out.read_bytes() == held


async def test_answers_to_other_prompts_models_or_settings_are_not_mixed(tmp_path: Path) -> None:
    out = tmp_path / "x"
    await evaluation.run(cfg(), ROWS, ScriptedModel.repeat("x"), out=out)
    before = out.read_bytes()
    with pytest.raises(InContextError) as caught:
        await evaluation.run(cfg("Now: {question}"), ROWS, ScriptedModel.repeat("x"), out=out)
    assert (caught.value.path, caught.value.name) == ("rows[0]", "prompt")
    with pytest.raises(InContextError) as caught:
        await evaluation.run(cfg(), ROWS, ScriptedModel.repeat("x", name="other"), out=out)
    assert [place for place, _ in caught.value.problems] == ["model"]
    with pytest.raises(InContextError) as caught:
        await evaluation.run(cfg(max_out_len=3), ROWS, ScriptedModel.repeat("x"), out=out)
    assert [place for place, _ in caught.value.problems] == ["settings"]
    assert out.read_bytes() == before


async def test_answers_through_another_chat_template_are_not_mixed(server: ChatServer, tmp_path: Path) -> None:
    name, out = server.on("templates", answers(lambda texts: "x")), tmp_path / "x"

    async def count_requests(template: str, **options: Any) -> int:
        model = CompletionModel(name, template, base_url=server.url, **options)
        await evaluation.run(cfg(), ROWS[:1], model, out=out)
        return len(server.to(name))

    assert [await count_requests("qwen"), await count_requests("qwen")] == [1, 1]
    with pytest.raises(InContextError) as caught:
        await count_requests("vicuna")
    assert [place for place, _ in caught.value.problems] == ["chat_template"]
    with pytest.raises(InContextError) as caught:
        await count_requests("interns1", template_kwargs={"enable_thinking": True})
    assert "chat_template" in [place for place, _ in caught.value.problems]
    assert len(server.to(name)) == 1


async def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    out = tmp_path / "x"
    await evaluation.run(cfg(), ROWS[:3], ScriptedModel.repeat("x"), out=out)
    held = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join([*held[:2], held[2][:20] + b"\n", *held[3:]]))
    with pytest.raises(InContextError) as caught:
        await evaluation.run(cfg(), ROWS[:3], ScriptedModel.repeat("x"), out=out)
    assert (caught.value.path, caught.value.line) == (str(out), 3)


async def test_two_runs_never_write_to_one_file(tmp_path: Path) -> None:
    class Second(ScriptedModel):
        async def request(self, composition: Any, *, on_delta: Any = None) -> Any:
            with pytest.raises(InContextError) as caught:
                await evaluation.run(cfg(), ROWS, ScriptedModel.repeat("x"), out=tmp_path / "x")
            assert (caught.value.path, caught.value.line) == (str(tmp_path / "x"), None)
            return await super().request(composition)

    await evaluation.run(cfg(), ROWS[:1], Second(["a0"]), out=tmp_path / "x")


async def test_half_of_a_character_is_stored(tmp_path: Path) -> None:
    rows = [{"question": "half \ud83d", "answer": "x"}]
    for _ in range(2):
        found = await evaluation.run(cfg(), rows, ScriptedModel(["x"]), out=tmp_path / "x", score="exact")
    assert found.score == 1.0


PROGRAM = """
import asyncio, os, sys
from agentkit import ScriptedModel
from agentkit.prompts import evaluation
from tests.model_evaluation.test_answer_files import cfg

rows = [{"question": f"q{number}", "answer": f"a{number}"} for number in range(300)]
asked = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

class Slow(ScriptedModel):
    async def request(self, composition, *, on_delta=None):
        text = composition.messages[-1].text
        os.write(asked, text.encode() + b"\\n")
        await asyncio.sleep(0.003)
        return await ScriptedModel([text.replace("q", "a")]).request(composition)

print(evaluation.run_sync(cfg(), rows, Slow([]), out=sys.argv[2], score="exact", concurrency=4).score)
"""


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_a_killed_evaluation_continues_without_repeated_requests(tmp_path: Path) -> None:
    out, asked = tmp_path / "answers.jsonl", tmp_path / "asked"
    command = [sys.executable, "-c", PROGRAM, str(asked), str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    kept: set[str] = set()
    for wanted in (30, 140):
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not out.exists() or out.read_bytes().count(b"\n") < wanted:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        whole = out.read_text("utf-8").rpartition("\n")[0].splitlines()[1:]
        kept = {json.loads(line)["prompt"][0]["content"] for line in whole}
        assert len(kept) == len(whole), "an answer is there twice"
    before = len(asked.read_text().split())
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1.0"
    again = set(asked.read_text().split()[before:])
    assert kept and again.isdisjoint(kept) and len(again | kept) == 300
