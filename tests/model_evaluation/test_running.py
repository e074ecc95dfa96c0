"""An evaluation sends its rows to an endpoint according to its inferencer, and scores the answers."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from starlette.responses import JSONResponse, Response

from agentkit import CompletionModel, ModelSettings, OpenAIModel, ScriptedModel
from agentkit.errors import AgentDefinitionError
from agentkit.models import ModelError, ModelReplyError, ModelUnavailable
from agentkit.prompts import evaluation
from agentkit.prompts.evaluation import (
    ApiMetaTemplate,
    EvaluationFailed,
    InContext,
    InContextError,
    InContextWarning,
    MetaTemplate,
)
from agentkit.testing import controlled_time
from tests.model_evaluation.evaluation_servers import answers, likely, texts_of
from tests.servers import Asked, ChatServer, in_turn, sends

READER = {"input_columns": ["question"], "output_column": "answer"}
TURNS = [{"role": "HUMAN", "prompt": "{question}"}, {"role": "BOT", "prompt": "{answer}"}]
ROWS = [{"question": f"{number}+{number}=?", "answer": str(2 * number)} for number in range(1, 6)]
META = {
    "round": [
        {"role": "HUMAN", "begin": "<h>", "end": "</h>"},
        {"role": "BOT", "begin": "<b>", "end": "</b>", "generate": True},
    ],
}


def sums(texts: list[str]) -> str:
    """Answer the last sum in the last text."""
    return str(2 * int(texts[-1].rpartition("+")[2].partition("=")[0]))


def cfg(template: Any = None, *, type: str = "GenInferencer", **settings: Any) -> dict[str, Any]:
    infer_cfg = {
        "prompt_template": {"type": "PromptTemplate", "template": template or {"round": TURNS}},
        "retriever": {"type": "ZeroRetriever"},
        "inferencer": {"type": type, **settings},
    }
    return {"reader_cfg": READER, "infer_cfg": infer_cfg}


def chat(server: ChatServer, name: str, **options: Any) -> OpenAIModel:
    return OpenAIModel(name, base_url=server.url, **options)


def completions(server: ChatServer, name: str, template: Any = "base", **options: Any) -> CompletionModel:
    return CompletionModel(name, template, base_url=server.url, **options)


def refused(caught: pytest.ExceptionInfo[InContextError]) -> tuple[Any, Any, Any]:
    """Return path, name and value of an error."""
    return caught.value.path, caught.value.name, caught.value.value


def places(caught: pytest.ExceptionInfo[InContextError]) -> list[str]:
    """Return the places of all problems of an error."""
    return [place for place, _ in caught.value.problems]


def names(caught: pytest.WarningsRecorder) -> list[str | None]:
    """Return the names in warnings about an evaluation."""
    return [one.message.name for one in caught if isinstance(one.message, InContextWarning)]


class TestGenerating:
    async def test_every_row_is_sent_once_and_its_answer_is_scored(self, server: ChatServer) -> None:
        server.on("gen", answers(sums))
        seen: list[tuple[int, int, int]] = []
        found = await evaluation.run(cfg(), ROWS, chat(server, "gen"), score="exact", progress=seen.append)
        assert [(row.row, row.answer, row.gold, row.score) for row in found.rows] == [
            (number, str(2 * number + 2), str(2 * number + 2), 1.0) for number in range(5)
        ]
        assert found.score == 1.0 and found.usage.output_tokens == 5 * 5
        assert sorted(seen)[-1] == (5, 5, 0) and len(seen) == 5
        assert sorted(texts_of(asked)[0] for asked in server.to("gen")) == [row["question"] for row in ROWS]

    async def test_worked_examples_come_from_the_split_of_the_reader(self, server: ChatServer) -> None:
        server.on("few", answers(sums))
        few = cfg({"begin": "</E>", "round": TURNS})
        few["infer_cfg"] |= {
            "prompt_template": {"template": {"begin": ["</E>"], "round": TURNS}, "ice_token": "</E>"},
            "ice_template": {"template": {"round": TURNS}},
            "retriever": {"type": "FixKRetriever", "fix_id_list": [1]},
        }
        splits = {
            "dev": [{"question": "7+7=?", "answer": "14"}, {"question": "8+8=?", "answer": "16"}],
            "val": ROWS[:1],
        }
        few["reader_cfg"] = {**READER, "train_split": "dev", "test_split": "val"}
        found = await evaluation.run(few, splits, chat(server, "few"), score="numeric")
        assert found.score == 1.0
        assert texts_of(server.to("few")[0]) == ["8+8=?", "16", "1+1=?"]

    async def test_plain_rows_are_never_shown_as_examples_of_themselves(self) -> None:
        few = cfg("{question}")
        few["infer_cfg"] |= {
            "retriever": {"type": "FixKRetriever", "fix_id_list": [0]},
            "ice_template": {"template": "x"},
        }
        with pytest.raises(InContextError) as caught:
            await evaluation.run(few, ROWS, ScriptedModel.repeat("x"))
        assert places(caught) == ["retriever.ids", "prompt_template.ice_token"]

    async def test_rows_of_one_split_can_be_examples_and_test_rows(self) -> None:
        few = cfg("</E>Q: {question}")
        few["infer_cfg"] |= {
            "retriever": {"type": "FixKRetriever", "fix_id_list": [0]},
            "ice_template": {"type": "PromptTemplate", "template": "{question} {answer}"},
        }
        few["infer_cfg"]["prompt_template"]["ice_token"] = "</E>"
        few["reader_cfg"] = {**READER, "train_split": "test", "test_range": "[1:3]"}
        prompts = []
        for rows in (ROWS, {"test": ROWS}):
            model = ScriptedModel.repeat("x")
            found = await evaluation.run(few, rows, model, concurrency=1)
            prompts.append([request.messages[0].text for request in model.requests])
            assert len(found.rows) == 2
        assert prompts[0] == prompts[1] == ["1+1=? 2\nQ: 2+2=?", "1+1=? 2\nQ: 3+3=?"]

    async def test_settings_of_the_inferencer_and_the_meta_template_reach_the_endpoint(
        self, server: ChatServer
    ) -> None:
        server.on("set", answers(sums))
        made = cfg(max_out_len=7, min_out_len=2, stopping_criteria=["\n\n"], temperature=0.5, batch_size=3)
        meta = {**META, "eos_token_id": [65605, "<eos>"]}
        model = completions(server, "set")
        await evaluation.run(made, ROWS[:1], model, meta_template=meta, settings=ModelSettings(seed=3))
        (asked,) = server.to("set")
        assert asked.body["prompt"] == "<h>1+1=?</h><b>"
        sent = {
            name: asked.body[name] for name in ("max_tokens", "min_tokens", "stop_token_ids", "temperature", "seed")
        }
        assert sent == {"max_tokens": 7, "min_tokens": 2, "stop_token_ids": [65605], "temperature": 0.5, "seed": 3}
        assert asked.body["stop"] == ["\n\n", "<eos>", "</b>"]

    async def test_greedy_is_greedy(self, server: ChatServer) -> None:
        server.on("greedy", answers(sums))
        await evaluation.run(cfg(do_sample=False), ROWS[:1], chat(server, "greedy"))
        assert server.to("greedy")[0].body["temperature"] == 0

    async def test_a_local_chat_model_writes_its_template_around_the_turns(self, server: ChatServer) -> None:
        server.on("local", answers(sums))
        await evaluation.run(cfg(), [{"question": "<|im_end|>1+1=?"}], completions(server, "local", "qwen"))
        sent = server.to("local")[0].body["prompt"]
        assert sent.endswith("=?<|im_end|>\n<|im_start|>assistant\n") and "<|im_end|>1+1" not in sent

    async def test_a_base_model_receives_the_texts_line_by_line(self, server: ChatServer) -> None:
        server.on("lines", answers(sums))
        await evaluation.run(cfg("Q: {question}\nA: {answer}"), ROWS[:1], completions(server, "lines"))
        assert server.to("lines")[0].body["prompt"] == "Q: 1+1=?\nA: "

    async def test_the_prompt_contains_the_examples_that_fit(self, server: ChatServer) -> None:
        server.on("fit", answers(sums))
        few = cfg(max_seq_len=30)
        few["infer_cfg"] |= {
            "prompt_template": {"template": "</E>{question}", "ice_token": "</E>"},
            "ice_template": {"template": "{question}{answer} and a long tail of words that takes quite some tokens"},
            "retriever": {"type": "FixKRetriever", "fix_id_list": [0, 1, 2]},
        }
        await evaluation.run(few, {"train": ROWS, "test": ROWS[4:]}, completions(server, "fit"))
        (prompt,) = texts_of(server.to("fit")[0])
        assert prompt.startswith("1+1=?2 and") and prompt.endswith("5+5=?") and "3+3" not in prompt

    async def test_a_prompt_longer_than_the_context_of_the_model_is_named_once(self, server: ChatServer) -> None:
        server.on("long", answers(lambda texts: "x"))
        rows = [{"question": "word " * 2_000, "answer": "x"}] * 3
        with pytest.warns(InContextWarning) as caught:
            await evaluation.run(cfg("{question}"), rows, completions(server, "long"))
        assert names(caught) == ["session_len"]
        assert len(server.to("long")) == 3

    async def test_an_exception_of_a_score_function_names_the_row(self) -> None:
        def strict(answer: str, gold: Any) -> float:
            return 1 / len(answer)

        with pytest.raises(ZeroDivisionError) as caught:
            await evaluation.run(cfg(), ROWS[:3], ScriptedModel(["x", "", "x"]), score=strict, concurrency=1)
        assert caught.value.__notes__ == ["row 1 of the evaluation"]


class TestDialogues:
    ROW: ClassVar[dict[str, Any]] = {"question": ["1+1=?", "2+2=?", "3+3=?"], "answer": ["2", "4", "7"]}

    def made(self, **inferencer: Any) -> dict[str, Any]:
        made = cfg(type="MultiTurnGenInferencer", **inferencer)
        made["infer_cfg"]["prompt_template"]["type"] = "MultiTurnPromptTemplate"
        return made

    @pytest.mark.parametrize(
        ("mode", "sent", "score"),
        [
            ("every", [["1+1=?"], ["1+1=?", "2", "2+2=?"], ["1+1=?", "2", "2+2=?", "4", "3+3=?"]], 2 / 3),
            ("every_with_gt", [["1+1=?"], ["1+1=?", "2", "2+2=?"], ["1+1=?", "2", "2+2=?", "4", "3+3=?"]], 2 / 3),
            ("last", [["1+1=?", "2", "2+2=?", "4", "3+3=?"]], 0.0),
        ],
    )
    async def test_the_mode_determines_the_requests_of_turns(
        self, server: ChatServer, mode: str, sent: list[list[str]], score: float
    ) -> None:
        server.on(f"turns {mode}", answers(sums))
        found = await evaluation.run(
            self.made(infer_mode=mode), [self.ROW], chat(server, f"turns {mode}"), score="exact"
        )
        assert [texts_of(asked) for asked in server.to(f"turns {mode}")] == sent
        assert found.score == pytest.approx(score)

    async def test_answers_of_the_model_are_fed_back_and_true_answers_are_not_replaced(
        self, server: ChatServer
    ) -> None:
        server.on("wrong", answers(lambda texts: f"reply {len(texts)}"))
        await evaluation.run(self.made(), [self.ROW], chat(server, "wrong"))
        assert texts_of(server.to("wrong")[2]) == ["1+1=?", "reply 1", "2+2=?", "reply 3", "3+3=?"]
        server.on("true", answers(lambda texts: "no"))
        await evaluation.run(self.made(infer_mode="every_with_gt"), [self.ROW], chat(server, "true"))
        assert texts_of(server.to("true")[2]) == ["1+1=?", "2", "2+2=?", "4", "3+3=?"]

    async def test_a_length_for_each_turn(self, server: ChatServer) -> None:
        server.on("lengths", answers(sums))
        await evaluation.run(self.made(max_out_len=[5, 6]), [self.ROW], completions(server, "lengths"))
        assert [asked.body["max_tokens"] for asked in server.to("lengths")] == [5, 6, 6]

    async def test_a_chat_inferencer_sends_the_last_turn(self, server: ChatServer) -> None:
        server.on("chat", answers(sums))
        found = await evaluation.run(cfg(type="ChatInferencer"), [self.ROW], chat(server, "chat"), score="exact")
        assert [texts_of(asked) for asked in server.to("chat")] == [["1+1=?", "2", "2+2=?", "4", "3+3=?"]]
        assert (found.rows[0].answers, found.score) == (("6",), 0.0)


class TestScoring:
    LABELS: ClassVar = {"A": "{question} yes", "B": "{question} no", "C": "{question} perhaps not"}

    async def test_the_likeliest_label_per_token_is_the_answer(self, server: ChatServer) -> None:
        worth = {" yes": -2.0, " no": -1.0, " perhaps": -0.5, " not": -3.0}
        server.on("ppl", likely(lambda token, _: worth.get(token, -1.0)))
        rows = [{"question": "So?", "answer": "B"}, {"question": "So?", "answer": "A"}]
        found = await evaluation.run(cfg(self.LABELS, type="PPLInferencer"), rows, completions(server, "ppl"))
        assert [(row.answer, row.score) for row in found.rows] == [("B", 1.0), ("B", 0.0)] and found.score == 0.5
        labels = found.rows[0].labels
        assert labels == pytest.approx({"A": -3.0 / 3, "B": -2.0 / 3, "C": -4.5 / 4})
        sent = server.to("ppl")[0].body
        assert sent["prompt"] == "So? yes" and sent["max_tokens"] == 1 and sent["temperature"] == 0.0
        assert "stop" not in sent

    async def test_a_label_is_scored_in_the_form_of_the_model(self, server: ChatServer) -> None:
        server.on("form", likely(lambda *_: -1.0))
        labels = {label: {"round": [TURNS[0], {"role": "BOT", "prompt": label}]} for label in "AB"}
        made = cfg(labels, type="PPLInferencer")
        await evaluation.run(made, ROWS[:1], completions(server, "form"), meta_template=META)
        assert [texts_of(asked) for asked in server.to("form")] == [[f"<h>1+1=?</h><b>{one}</b>"] for one in "AB"]
        server.on("own", likely(lambda *_: -1.0))
        await evaluation.run(made, ROWS[:1], completions(server, "own", "qwen"))
        assert server.to("own")[0].body["prompt"].endswith("<|im_start|>assistant\nA<|im_end|>")

    async def test_labels_of_the_inferencer_replace_the_labels_of_the_template(self, server: ChatServer) -> None:
        server.on("labels", likely(lambda *_: -1.0))
        made = cfg("{question} {answer}", type="PPLInferencer", labels=["yes"])
        found = await evaluation.run(made, ROWS[:2], completions(server, "labels"))
        assert [row.answer for row in found.rows] == ["yes", "yes"]

    async def test_a_normalizing_text_removes_the_prior_of_an_answer(self, server: ChatServer) -> None:
        made = cfg(
            {"x": "{question}</S> xx", "y": "{question}</S> yy"}, type="PPLInferencer", normalizing_str="Answer:"
        )
        made["infer_cfg"]["prompt_template"]["sep_token"] = "</S>"
        worth = {(" xx", "Q"): -1.0, (" yy", "Q"): -2.0, (" xx", "A"): -1.0, (" yy", "A"): -5.0}
        server.on("norm", likely(lambda token, before: worth.get((token, before[0]), -7.0)))
        found = await evaluation.run(made, [{"question": "Q?", "answer": "y"}], completions(server, "norm"))
        assert found.rows[0].labels == pytest.approx({"x": 0.0, "y": 3.0}) and found.score == 1.0
        assert [texts_of(asked)[0] for asked in server.to("norm")] == ["Q? xx", "Answer: xx", "Q? yy", "Answer: yy"]

    async def test_a_continuation_alone_is_scored_completely(self, server: ChatServer) -> None:
        made = cfg({"1": "{one} {cont}", "2": "{two} {cont}"}, type="LLInferencer")
        made["reader_cfg"] = {"input_columns": ["one", "two", "cont"], "output_column": "answer"}
        server.on("ll", likely(lambda _, before: -1.0 if before.startswith("sun") else -2.0))
        row = {"one": "rain", "two": "sun", "cont": "was bright", "answer": "2"}
        found = await evaluation.run(made, [row], completions(server, "ll"))
        assert found.rows[0].labels == pytest.approx({"1": -4.0, "2": -2.0}) and found.score == 1.0
        made["infer_cfg"]["prompt_template"]["template"] = {"1": "{cont}."}
        with pytest.raises(InContextError) as caught:
            await evaluation.run(made, [row], completions(server, "ll"))
        assert refused(caught) == ("rows[0]", "cont", None)

    async def test_a_model_without_log_probabilities_is_refused(self, server: ChatServer) -> None:
        made = cfg(self.LABELS, type="PPLInferencer")
        with pytest.raises(InContextError) as caught:
            await evaluation.run(made, ROWS, chat(server, "x"))
        assert refused(caught) == (None, "model", "x")
        server.on("mute", answers(lambda texts: texts[0]))
        with pytest.raises(EvaluationFailed) as failed:
            await evaluation.run(made, ROWS, completions(server, "mute"))
        assert {type(error) for error in failed.value.failures.values()} == {ModelReplyError}


class TestMistakes:
    @pytest.mark.parametrize(
        ("change", "place"),
        [
            ({"type": "GenInferencr"}, "name"),
            ({"infer_mode": "every"}, "infer_mode"),
            ({"max_length": 3}, "max_length"),
        ],
    )
    async def test_an_unknown_inferencer_mode_or_key_is_named_before_any_request(
        self, change: dict[str, Any], place: str
    ) -> None:
        model = ScriptedModel.repeat("x")
        with pytest.raises(InContextError) as caught:
            await evaluation.run(cfg(**{"type": "GenInferencer", **change}), ROWS, model)
        assert places(caught) == [f"infer_cfg['inferencer'].{place}"]
        assert not model.requests

    async def test_an_inferencer_without_an_implementation_is_refused(self) -> None:
        with pytest.raises(InContextError) as caught:
            await evaluation.run(cfg(type="AgentInferencer"), ROWS, ScriptedModel.repeat("x"))
        assert refused(caught) == (None, "inferencer", "AgentInferencer")

    @pytest.mark.parametrize(
        ("options", "name", "value"),
        [
            ({"score": "exactly"}, "score", "exactly"),
            ({"concurrency": 0}, "concurrency", "0"),
            ({"retries": -1}, "retries", "-1"),
            ({"meta_template": MetaTemplate(META)}, "meta_template", "MetaTemplate"),
            ({"meta_template": "qwen"}, "meta_template", "str"),
        ],
    )
    async def test_options_without_effect_are_refused(self, options: dict[str, Any], name: str, value: str) -> None:
        given = {"rows": ROWS, "model": ScriptedModel.repeat("x"), **options}
        with pytest.raises(InContextError) as caught:
            await evaluation.run(cfg(), **given)
        assert refused(caught) == (None, name, value)

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"rows": None, "model": 7, "counter": 5}, ["rows", "model", "counter"]),
            ({"rows": iter(ROWS)}, ["rows"]),
            ({"rows": {"test": "x", "train": 5}}, ["rows['test']", "rows['train']"]),
        ],
    )
    async def test_invalid_rows_models_and_tokenizers_are_refused(
        self, options: dict[str, Any], expected: list[str]
    ) -> None:
        given = {"rows": ROWS, "model": ScriptedModel.repeat("x"), **options}
        with pytest.raises(InContextError) as caught:
            await evaluation.run(cfg(), **given)
        assert places(caught) == expected

    async def test_the_name_of_a_model_is_its_model(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = await evaluation.run(cfg(), ROWS, "offline", score="none")
        assert len(found.rows) == len(ROWS)
        with pytest.raises(AgentDefinitionError):
            await evaluation.run(cfg(), ROWS, "gpt-5-mini")
        monkeypatch.setitem(sys.modules, "openai", None)
        with pytest.raises(ModelError) as caught:
            await evaluation.run(cfg(), ROWS, "openai:gpt-5-mini", score="exact")
        assert caught.value.name == "openai"

    async def test_a_file_that_cannot_be_written_is_refused(self) -> None:
        with pytest.raises(InContextError) as caught:
            await evaluation.run(cfg(), ROWS, ScriptedModel.repeat("x"), out=".")
        assert refused(caught) == (".", None, None)

    async def test_a_configuration_without_its_parts(self) -> None:
        with pytest.raises(InContextError) as caught:
            await evaluation.run({"abbr": "x"}, ROWS, ScriptedModel.repeat("x"))
        assert refused(caught) == (None, "infer_cfg, reader_cfg", None)
        with pytest.raises(InContextError) as caught:
            await evaluation.run(cfg(), [{"q": 1}], ScriptedModel.repeat("x"))
        assert places(caught) == ["test.question"]


class TestNothingIsScoredInSilence:
    async def test_rows_without_any_true_answer_are_refused_unless_no_score_is_computed(self) -> None:
        model = ScriptedModel.repeat("x")
        rows = [{"question": "q"}, {"question": "p", "answer": None}]
        with pytest.raises(InContextError) as refusal:
            await evaluation.run(cfg(), rows, model, score="exact")
        assert refused(refusal) == ("test", "answer", None)
        with pytest.raises(InContextError) as refusal:
            await evaluation.run({**cfg(), "reader_cfg": {"input_columns": ["question"]}}, rows, model, score="exact")
        assert refused(refusal) == (None, "reader_cfg.output_column", None)
        assert not model.requests
        assert (await evaluation.run(cfg(), rows, model, score="none")).score is None
        with pytest.warns(InContextWarning) as caught:
            found = await evaluation.run(cfg(), [*rows, ROWS[0]], model, score="exact")
        assert names(caught) == ["answer"]
        assert [row.score for row in found.rows] == [None, None, 0.0]

    async def test_a_true_answer_that_cannot_be_compared_is_reported_before_any_request(self) -> None:
        model = ScriptedModel.repeat("2")
        with pytest.raises(InContextError) as caught:
            await evaluation.run(cfg(), [*ROWS, {"question": "q", "answer": "two"}], model, score="numeric")
        assert refused(caught) == ("rows[5]", "numeric", "two")
        assert not model.requests

    @pytest.mark.parametrize("retriever", ["BM25Retriever", "RandomRetriever", "SlidingWindowRetriever"])
    async def test_plain_rows_and_a_retriever_are_refused_before_any_request(self, retriever: str) -> None:
        few = cfg()
        few["infer_cfg"] |= {
            "prompt_template": {"template": "</E>{question}", "ice_token": "</E>"},
            "ice_template": {"template": "{question} {answer}"},
            "retriever": {"type": retriever, "ice_num": 5},
        }
        model = ScriptedModel.repeat("x")
        with pytest.raises(InContextError) as refusal:
            await evaluation.run(few, ROWS, model)
        assert places(refusal) == ["train"]
        assert not model.requests
        few["reader_cfg"] = {**READER, "train_split": "test"}
        with pytest.warns(InContextWarning) as caught:
            await evaluation.run(few, {"test": ROWS}, model, score="exact")
        assert names(caught) == ["0, 1, 2, 3, 4"]


class TestSampling:
    @pytest.mark.parametrize(
        ("inferencer", "own", "given", "sent"),
        [
            ({}, ModelSettings(), ModelSettings(), 0.0),
            ({"temperature": 0.3}, ModelSettings(temperature=0.4), ModelSettings(), 0.3),
            ({"temperature": 0.3}, ModelSettings(temperature=0.4), ModelSettings(temperature=0.5), 0.5),
            ({}, ModelSettings(temperature=0.4), ModelSettings(), 0.4),
            ({"do_sample": True}, ModelSettings(), ModelSettings(), 1.0),
            ({}, ModelSettings(top_p=0.5), ModelSettings(), 1.0),
        ],
    )
    async def test_a_local_model_answers_greedily_without_explicit_settings(
        self, server: ChatServer, inferencer: Any, own: ModelSettings, given: ModelSettings, sent: float
    ) -> None:
        name = server.on(f"sampling {inferencer} {own} {given}", answers(sums))
        model = completions(server, name, "qwen", settings=own)
        assert model.chat_template.temperature == 1.0
        await evaluation.run(cfg(**inferencer), ROWS[:1], model, settings=given)
        assert server.to(name)[0].body["temperature"] == sent

    async def test_a_chat_endpoint_receives_no_sampling_without_explicit_settings(self, server: ChatServer) -> None:
        server.on("unset", answers(sums))
        await evaluation.run(cfg(), ROWS[:1], chat(server, "unset"))
        assert "temperature" not in server.to("unset")[0].body


class TestFailures:
    async def test_a_missing_server_ends_the_run_immediately(self) -> None:
        model = OpenAIModel("gone", base_url="http://127.0.0.1:9/v1", max_retries=0)
        seen: list[Any] = []
        with pytest.raises(ModelUnavailable):
            await evaluation.run(cfg(), ROWS * 20, model, concurrency=1, progress=seen.append, retries=50)
        assert len(seen) == 2  # the third row without a connection ends it

    async def test_a_server_that_stops_is_reported_once_and_the_remaining_rows_are_not_sent(self) -> None:
        class Leaving(ScriptedModel):
            async def request(self, composition: Any, *, on_delta: Any = None) -> Any:
                if len(self.requests) >= 2:
                    raise ModelUnavailable("no connection")
                return await super().request(composition)

        with pytest.raises(EvaluationFailed) as caught:
            await evaluation.run(cfg(), ROWS * 20, Leaving.repeat("x"), concurrency=1, retries=0, score="exact")
        assert len(caught.value.evaluation.rows) == 2 and len(caught.value.failures) == 98
        reported = "98 of 100 rows failed: rows 2, 3, 4, 5, 6 and 93 more: ModelUnavailable: no connection."
        assert str(caught.value) == f"{reported} With out= the next run would retry only the failed rows"

    async def test_temporary_errors_are_retried(self, server: ChatServer) -> None:
        server.on("late", in_turn(sends({"error": {"message": "busy"}}, 503), answers(lambda _: "2")))
        found = await evaluation.run(cfg(), ROWS[:1], chat(server, "late", max_retries=0), score="exact")
        assert found.score == 1.0 and len(server.to("late")) == 2

    async def test_rows_that_failed_are_named_and_never_counted_as_answers(self, server: ChatServer) -> None:
        def picky(asked: Asked) -> Response:
            if texts_of(asked) == ["3+3=?"]:
                return JSONResponse({"error": {"message": "too long"}}, 400)
            return answers(sums)(asked)

        server.on("picky", picky)
        with pytest.raises(EvaluationFailed) as error:
            await evaluation.run(cfg(), ROWS, chat(server, "picky"), score="exact", concurrency=1)
        assert [row.row for row in error.value.evaluation.rows] == [0, 1, 3, 4] and list(error.value.failures) == [2]

    async def test_an_error_that_every_row_would_have_ends_the_run_immediately(self, server: ChatServer) -> None:
        from agentkit.models import ModelAuthError, ModelRequestError

        for status, kind in ((401, ModelAuthError), (404, ModelRequestError)):
            name = server.on(f"no {status}", sends({"error": {"message": "no"}}, status))
            with pytest.raises(kind):
                await evaluation.run(cfg(), ROWS * 20, chat(server, name), concurrency=2)
            assert len(server.to(name)) <= 4

    async def test_an_error_of_the_score_is_the_caller_s(self) -> None:
        def broken(answer: str, gold: Any) -> float:
            raise ZeroDivisionError("in the score")

        with pytest.raises(ZeroDivisionError) as caught:
            await evaluation.run(cfg(), ROWS, ScriptedModel.repeat("x"), score=broken)
        assert caught.value.args == ("in the score",)


async def test_two_hundred_requests_are_in_progress_at_once(server: ChatServer) -> None:
    now, most = 0, 0
    gate = asyncio.Event()

    class Slow(ScriptedModel):
        async def request(self, composition: Any, *, on_delta: Any = None) -> Any:
            nonlocal now, most
            now += 1
            most = max(most, now)
            if now == 200:
                gate.set()
            await gate.wait()
            now -= 1
            return await super().request(composition)

    rows = [{"question": str(number), "answer": "x"} for number in range(200)]
    found = await evaluation.run(cfg(), rows, Slow.repeat("x"), concurrency=200, score="exact")
    assert most == 200 and found.score == 1.0


def test_run_sync_works_from_code_that_is_not_async() -> None:
    icl = InContext.from_cfg(cfg()["infer_cfg"], READER)
    found = evaluation.run_sync(icl, ROWS[:1], ScriptedModel.repeat("2"), score=lambda answer, gold: answer == gold)
    assert found.score == 1.0 and repr(found) == "Evaluation(1 rows, score=1.0000)"


async def test_an_api_meta_template_determines_the_roles(server: ChatServer) -> None:
    server.on("api", answers(sums))
    meta = ApiMetaTemplate({"round": [{"role": "HUMAN", "begin": "[", "end": "]"}, {"role": "BOT", "generate": True}]})
    await evaluation.run(cfg(), ROWS[:1], chat(server, "api"), meta_template=meta)
    assert server.to("api")[0].body["messages"] == [{"role": "user", "content": "[1+1=?]"}]
    assert json.dumps(server.to("api")[0].body)


class TestDoubts:
    @pytest.mark.parametrize(
        ("template", "warned"),
        [
            ("Q: {qestion}", "{qestion}"),
            ("Q: { question }", "{ question }"),
            ("Q: {Question!r}", "{Question!r}"),
            ("{question} A: {answr}", "{answr}"),
            ({"round": [{"role": "HUMAN", "prompt": "{q}"}]}, "{q}"),
            ({"yes": "{question} yes", "no": "{qestion} no"}, "{qestion}"),
        ],
    )
    async def test_braces_that_are_probably_a_column_are_named(self, template: Any, warned: str) -> None:
        icl = InContext.from_cfg(cfg(template)["infer_cfg"], READER)
        with pytest.warns(InContextWarning) as caught:
            await evaluation.run(icl, ROWS[:1], ScriptedModel(["x"]))
        assert names(caught) == [f"prompt_template.{warned}"]

    @pytest.mark.parametrize("template", ["{question} \\boxed{x} {answer}", "{question}: {sum} {'a': 1} {}", "Sum:"])
    async def test_other_braces_are_unchanged(self, template: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await evaluation.run(cfg(template), ROWS[:1], ScriptedModel(["x"]))

    def test_rows_that_contain_their_own_answer_are_named_at_the_line_of_the_call(self) -> None:
        few = cfg("</E>{question}")["infer_cfg"]
        few |= {
            "prompt_template": {"template": "</E>{question}", "ice_token": "</E>"},
            "ice_template": {"template": "{question}{answer}"},
            "retriever": {"type": "FixKRetriever", "fix_id_list": [0, 1]},
        }
        icl = InContext.from_cfg(few, READER, train=ROWS[:2])
        with pytest.warns(InContextWarning) as caught:
            evaluation.run_sync(icl, ROWS, ScriptedModel.repeat("x"))
        assert (names(caught), caught[0].filename) == (["0, 1"], __file__)
        with pytest.warns(InContextWarning) as caught:
            next(icl.samples(ROWS[:1]))
        assert names(caught) == ["0"]


def test_an_interrupted_evaluation_names_the_file_to_continue_from(tmp_path: Path) -> None:
    class Stopped(ScriptedModel):
        async def request(self, composition: Any, *, on_delta: Any = None) -> Any:
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt) as caught:
        evaluation.run_sync(cfg(), ROWS[:1], Stopped.repeat("x"), out=tmp_path / "kept.jsonl")
    assert caught.value.__notes__ == [
        f"the evaluation was stopped; its answers are in {tmp_path / 'kept.jsonl'}, and the same call continues"
    ]


async def test_requests_start_at_the_distance_of_a_rate() -> None:
    begun: list[float] = []

    class Timed(ScriptedModel):
        async def request(self, composition: Any, *, on_delta: Any = None) -> Any:
            begun.append(asyncio.get_running_loop().time())
            return await super().request(composition)

    with controlled_time():  # a busy machine starts some requests late, before a shorter distance
        await evaluation.run(cfg(), ROWS, Timed.repeat("x"), rate=50)
    assert [later - earlier for earlier, later in pairwise(begun)] == pytest.approx([1 / 50] * 4)
    for wrong in (0, -1, float("nan"), float("inf"), "2", True):
        with pytest.raises(InContextError) as caught:
            await evaluation.run(cfg(), ROWS, ScriptedModel.repeat("x"), rate=wrong)  # type: ignore[arg-type]
        assert refused(caught) == (None, "rate", repr(wrong))


async def test_settings_without_effect_are_refused(server: ChatServer) -> None:
    made = cfg({"yes": "{question} yes", "no": "{question} no"}, type="PPLInferencer")
    model = completions(server, "scored")
    with pytest.raises(InContextError) as caught:
        await evaluation.run(made, ROWS, model, settings=ModelSettings(temperature=0.3, seed=1))
    assert refused(caught) == (None, "settings", "temperature=0.3, seed=1")


async def test_invalid_keys_of_all_parts_are_named_together() -> None:
    made = {**cfg(), "eval_cfg": {"evaluator": {"type": "AccEvaluater"}}, "reader_cfg": {**READER, "otput": 1}}
    made["infer_cfg"]["prompt_templat"] = {}
    with pytest.raises(InContextError) as caught:
        await evaluation.run(made, ROWS, ScriptedModel.repeat("x"))
    assert places(caught) == ["infer_cfg.prompt_templat", "reader_cfg.otput", "eval_cfg"]
