"""Inferencers of a configuration, and the options of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agentkit.prompts import evaluation
from agentkit.prompts.evaluation import InContext, Inferencer
from tests.prompts.evaluation.refusals import places, refused

READER = {"input_columns": ["question"], "output_column": "answer"}
TURNS = {"round": [{"role": "HUMAN", "prompt": "{question}"}, {"role": "BOT", "prompt": "{answer}"}]}


def configured(template: Any = TURNS, reader: Any = READER, **inferencer: Any) -> InContext:
    return InContext.from_cfg({"prompt_template": {"template": template}, "inferencer": inferencer}, reader)


def problems(**inferencer: Any) -> list[str]:
    """Return the keys of the problems of an inferencer."""
    return [place.removeprefix("infer_cfg['inferencer'].") for place in places(lambda: configured(**inferencer))]


def requested(icl: InContext, row: dict[str, Any], *answers: str | None) -> list[list[tuple[str, str]]]:
    requests = icl.requests(row)
    prompts, found = [next(requests)], []
    for answer in answers:
        try:
            prompts.append(requests.send(answer))
        except StopIteration as end:
            found = end.value
    assert found == list(answers)
    return [[(item["role"], item["prompt"]) for item in prompt if "role" in item] for prompt in prompts]


def test_known_options_of_an_inferencer_are_kept_and_unknown_options_are_named() -> None:
    cfg = {"max_out_len": 5, "stopping_criteria": ["\n\n"], "batch_size": 8, "max_seq_len": 100, "save_every": 1}
    read = configured(type="GenInferencer", temperature=0.5, **cfg).inferencer
    assert (read.asks, read.max_out_len, list(read.stopping_criteria), read.batch_size) == ("gen", 5, ["\n\n"], 8)
    assert read.generation_kwargs == {"temperature": 0.5}
    assert problems(type="GenInferencr") == ["name"]
    assert refused(lambda: Inferencer(name="GenInferencr")).value == "'GenInferencr'"
    assert problems(type="GenInferencer", max_out=5, mode="every") == ["max_out", "mode"]
    assert problems(type="GenInferencer", output_json_filename="x") == ["output_json_filename"]


@pytest.mark.parametrize(
    ("cfg", "place"),
    [
        ({"type": "ChatInferencer", "infer_mode": "evry"}, "infer_mode"),
        ({"type": "GenInferencer", "infer_mode": "every"}, "infer_mode"),
        ({"type": "GenInferencer", "max_out_len": [5, 6]}, "max_out_len"),
        ({"type": "GenInferencer", "max_out_len": 0}, "max_out_len"),
        ({"type": "GenInferencer", "stopping_criteria": "x"}, "stopping_criteria"),
        ({"type": "ChatInferencer", "labels": ["A"]}, "labels"),
        ({"type": "PPLInferencer", "labels": []}, "labels"),
        ({"type": "GenInferencer", "batch_size": True}, "batch_size"),
        ({"type": "GenInferencer", "temperature": "hot"}, "temperature"),
        ({"type": "GenInferencer", "generation_kwargs": {"beams": 3}}, "generation_kwargs.beams"),
        ({"type": "ChatInferencer", "normalizing_str": ""}, "normalizing_str"),
    ],
)
def test_an_invalid_value_of_an_option_is_an_error(cfg: dict[str, Any], place: str) -> None:
    assert problems(**cfg) == [place]


def test_the_error_names_all_problems_of_an_inferencer() -> None:
    found = places(lambda: Inferencer(batch_size=0, max_out_len=-1, infer_mode="every"))
    assert found == ("max_out_len", "batch_size", "infer_mode")


def test_a_configuration_of_an_unsupported_inferencer_can_be_built() -> None:
    icl = configured(type="AgentInferencer", example="1", infer_mode="every_with_gt")
    assert icl.inferencer.name == "AgentInferencer" and icl.mode == "gen"
    (made,) = icl.prompts([{"question": "q", "answer": "a"}])
    assert made.final[1] == {"role": "HUMAN", "prompt": "q"}


class TestChats:
    """Dialogues of `ChatInferencer` for any template."""

    def test_texts_are_one_turn_that_ends_before_the_answer(self) -> None:
        icl = configured(type="ChatInferencer")
        assert requested(icl, {"question": "q", "answer": "a"}, "x") == [[("HUMAN", "q")]]
        plain = configured("Q: {question}", type="ChatInferencer")
        assert requested(plain, {"question": "q", "answer": "a"}, "x") == [[("HUMAN", "Q: q")]]

    def test_lists_of_texts_are_turns_after_true_or_model_answers(self) -> None:
        row = {"question": ["1", "2"], "answer": ["one", "two"]}
        own = configured(type="ChatInferencer", infer_mode="every")
        assert requested(own, row, "x", "y") == [[("HUMAN", "1")], [("HUMAN", "1"), ("BOT", "x"), ("HUMAN", "2")]]
        true = configured(type="ChatInferencer", infer_mode="every_with_gt")
        assert requested(true, row, "x", "y") == [[("HUMAN", "1")], [("HUMAN", "1"), ("BOT", "one"), ("HUMAN", "2")]]
        last = configured(type="ChatInferencer")
        assert requested(last, row, "x") == [[("HUMAN", "1"), ("BOT", "one"), ("HUMAN", "2")]]

    def test_a_column_of_messages_is_the_dialogue_itself(self) -> None:
        talk = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "1"},
            {"role": "assistant", "content": "one"},
            {"role": "user", "content": "2"},
            {"role": "assistant", "content": ""},
        ]
        reader = {"input_columns": ["dialogue", "kind"], "output_column": "kind"}
        icl = configured("{dialogue}", reader, type="ChatInferencer", infer_mode="every")
        first, second = requested(icl, {"dialogue": talk, "kind": 3}, "x", "y")
        assert first == [("SYSTEM", "Be brief."), ("HUMAN", "1")]
        assert second == [*first, ("BOT", "x"), ("HUMAN", "2")]
        assert requested(icl, {"dialogue": tuple(talk), "kind": 3}, "x", "y") == [first, second]
        empty = configured(type="ChatInferencer", infer_mode="every")
        assert refused(lambda: next(empty.requests({"question": [], "answer": ["x"]}))).problems

    def test_a_failed_turn_ends_a_dialogue_of_model_answers(self) -> None:
        icl = configured(type="ChatInferencer", infer_mode="every")
        assert len(requested(icl, {"question": ["1", "2"], "answer": ["one", "two"]}, None)) == 1

    @pytest.mark.parametrize(
        ("row", "problems"),
        [
            ({"question": ["1", "2"], "answer": ["one"]}, [("question", "has 2 entries"), ("answer", "has 1 entries")]),
            ({"question": 5, "answer": "a"}, [("question", "is a int"), ("answer", "is a str")]),
        ],
    )
    def test_the_error_names_a_row_that_is_not_a_dialogue(
        self, row: dict[str, Any], problems: list[tuple[str, str]]
    ) -> None:
        error = refused(lambda: next(configured(type="ChatInferencer").requests(row)))
        assert [*error.problems] == problems

    def test_the_error_names_an_unknown_role(self) -> None:
        row = {"question": [{"role": "robot", "content": "x"}]}
        error = refused(lambda: next(configured(type="ChatInferencer").requests(row)))
        assert (error.name, error.value) == ("role", "'robot'")

    def test_worked_examples_in_a_dialogue_are_refused(self) -> None:
        cfg = {
            "prompt_template": {"template": {"begin": "</E>", **TURNS}, "ice_token": "</E>"},
            "ice_template": {"template": TURNS},
            "retriever": {"type": "FixKRetriever", "fix_id_list": [0]},
            "inferencer": {"type": "ChatInferencer"},
        }
        rows = [{"question": "q", "answer": "a"}]
        assert places(lambda: InContext.from_cfg(cfg, READER, train=rows)) == ("retriever",)


def test_the_names_of_the_originals_can_be_written_bare() -> None:
    from agentkit.prompts import evaluation as bare

    for retriever, more in ((bare.ZeroRetriever, {}), (bare.FixKRetriever, {"fix_id_list": [0]})):
        icl = InContext.from_cfg(
            {
                "prompt_template": {
                    "type": bare.PromptTemplate,
                    "template": {"begin": "</E>", **TURNS},
                    "ice_token": "</E>",
                },
                "ice_template": {"type": bare.PromptTemplate, "template": TURNS},
                "retriever": dict(type=retriever, **more),
                "inferencer": {"type": bare.GenInferencer},
            },
            READER,
            train=[{"question": "q", "answer": "a"}],
        )
        assert icl.ids([{"question": "x"}]) == [(0,) if more else ()]
    assert configured({"A": "x"}, type=bare.PPLInferencer).mode == "ppl"


class _Lengths:
    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, float(len(text))] for text in texts]


def test_each_class_of_a_configuration_is_a_public_name() -> None:
    retrievers = [name for name in evaluation.__all__ if name.endswith("Retriever")]
    inferencers = [name for name in evaluation.__all__ if name.endswith("Inferencer") and name != "Inferencer"]
    assert (len(retrievers), len(inferencers)) == (6, 7)
    for name in (*retrievers, *inferencers):
        bare = getattr(evaluation, name)
        part = "retriever" if name in retrievers else "inferencer"
        needs = {"fix_id_list": [0]} if name == "FixKRetriever" else {}
        cfg = {part: {"type": bare, **needs}, "ice_template": {"template": "</E>{q}", "ice_token": "</E>"}}
        rows = [{"q": "x", "a": "y"}]
        made = InContext.from_cfg(cfg, {"input_columns": "q", "output_column": "a"}, train=rows, embedder=_Lengths())
        assert part == "retriever" or made.inferencer.name == name
