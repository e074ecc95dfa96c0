"""Evaluations: templates, examples, readers and models put together, and read from configurations as shipped."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest

from agentkit.prompts import Example
from agentkit.prompts.chat_templates import CHAT_TEMPLATES
from agentkit.prompts.evaluation import (
    ApiMetaTemplate,
    DatasetReader,
    InContext,
    InContextWarning,
    MetaTemplate,
    MultiTurnPromptTemplate,
    PromptList,
    PromptTemplate,
    RawPromptTemplate,
    RowPrompt,
)
from agentkit.prompts.example_selectors import KeywordSelector, StaticSelector
from tests.prompts.evaluation.refusals import is_marker, places, refused, warned

TRAIN = [
    {"question": "2+2=?", "answer": "4", "topic": "t0"},
    {"question": "3+3=?", "answer": "6", "topic": "t1"},
    {"question": "{question}</E>", "answer": "{answer}", "topic": "t2"},
]
ROW = {"question": "1+1=?", "answer": "2", "topic": "sums"}
READER = {"input_columns": ["topic", "question"], "output_column": "answer"}
TURNS = [{"role": "HUMAN", "prompt": "{question}"}, {"role": "BOT", "prompt": "{answer}"}]
DIALOGUE = {"begin": [{"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": "Sums."}, "</E>"], "round": TURNS}
TWO = {"type": "FixKRetriever", "fix_id_list": [0, 1]}
ZERO = {"type": "ZeroRetriever"}
GEN = {"type": "GenInferencer"}
PPL = {"type": "PPLInferencer"}
ASKS = {"prompt_template": {"template": "x"}}
MOSS = {
    "begin": "<meta>",
    "round": [
        {"role": "HUMAN", "begin": "<h>", "end": "</h>\n"},
        {"role": "BOT", "begin": "<b>", "end": "</b>\n", "generate": True},
    ],
    "end": "<end>",
}


class PromptTemplateOfAnotherSuite:
    """A class of another suite in a configuration: the reader uses only its name."""


PromptTemplateOfAnotherSuite.__name__ = "PromptTemplate"


def read(train: Sequence[Any] = TRAIN, reader: Any = READER, **infer_cfg: Any) -> InContext:
    return InContext.from_cfg(infer_cfg, reader, train=train)


def dialogue_of(prompt: object) -> list[Any]:
    assert type(prompt) is PromptList
    return [(item["role"], item["prompt"]) for item in prompt if isinstance(item, dict) and not is_marker(item)]


# Examples of the documents


def test_a_text_template_hides_the_answer_and_leaves_unknown_columns() -> None:
    icl = read(prompt_template={"template": "{topic}\nQ: {question} {other}\nA: {answer}"}, retriever=ZERO)
    assert icl.prompt(ROW) == "sums\nQ: 1+1=? {other}\nA: "


def test_worked_examples_of_text_replace_the_token() -> None:
    icl = read(
        ice_template={"type": PromptTemplate, "template": "{question}\n{answer}"},
        prompt_template={"type": PromptTemplate, "template": "Solve.\n</E>{question}\n{answer}", "ice_token": "</E>"},
        retriever=TWO,
        inferencer=GEN,
    )
    assert icl.prompt(ROW, icl.ids([ROW])[0]) == "Solve.\n2+2=?\n4\n3+3=?\n6\n1+1=?\n"


def test_worked_examples_of_a_dialogue_are_turns_before_the_question() -> None:
    icl = read(
        ice_template={"template": {"round": TURNS}},
        prompt_template={"template": DIALOGUE, "ice_token": "</E>"},
        retriever=TWO,
    )
    assert dialogue_of(icl.prompt(ROW, [0, 1])) == [
        ("SYSTEM", "Sums."),
        ("HUMAN", "2+2=?"),
        ("BOT", "4"),
        ("HUMAN", "3+3=?"),
        ("BOT", "6"),
        ("HUMAN", "1+1=?"),
        ("BOT", ""),
    ]


def test_the_template_of_examples_renders_the_prompt_if_it_is_the_only_template() -> None:
    both = read(
        ice_template={"template": "Q: {question}\nA: {answer}"},
        prompt_template={"template": "</E>Q: {question}\nA: {answer}", "ice_token": "</E>"},
        retriever=TWO,
    )
    one = read(ice_template={"template": "</E>Q: {question}\nA: {answer}", "ice_token": "</E>"}, retriever=TWO)
    assert one.prompt(ROW, [0, 1]) == both.prompt(ROW, [0, 1]) == "Q: 2+2=?\nA: 4\nQ: 3+3=?\nA: 6\nQ: 1+1=?\nA: "


def test_a_template_needs_no_token_without_examples() -> None:  # OpenCompass refuses it
    for cfg in ({"retriever": ZERO}, {}, {"retriever": {"type": "FixKRetriever", "fix_id_list": []}}):
        assert read(ice_template={"template": "Q: {question}\nA: {answer}"}, **cfg).prompt(ROW) == "Q: 1+1=?\nA: "


def test_a_column_can_have_a_token_and_a_dialogue_an_end() -> None:
    icl = read(
        prompt_template={
            "type": "PromptTemplate",
            "template": {
                "begin": [{"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": "Choose."}, "</E>"],
                "round": [{"role": "HUMAN", "prompt": "</input> "}, {"role": "BOT", "prompt": "</target>"}],
                "end": "the end",
            },
            "column_token_map": {"question": "</input>", "answer": "</target>"},
            "ice_token": "</E>",
        },
        ice_template={"template": "x"},
        retriever=ZERO,
        inferencer=PPL,
    )
    said = icl.final(ROW, MetaTemplate(MOSS))
    assert said == "<meta><h>Choose.</h>\n<h>1+1=? </h>\n<b>2</b>\nthe end<end>"


def test_one_prompt_for_each_label_is_scored() -> None:
    labelled = {label: {"round": [TURNS[0], {"role": "BOT", "prompt": label}]} for label in ("A", "B")}
    icl = read(prompt_template={"template": labelled}, retriever=ZERO, inferencer=PPL)
    assert icl.labels() == ["A", "B"]
    assert list(icl.prompts([ROW], MetaTemplate(MOSS))) == [
        RowPrompt(0, label, (), icl.prompt(ROW, (), label), f"<meta><h>1+1=?</h>\n<b>{label}</b>\n<end>")
        for label in ("A", "B")
    ]


# Rows and models


def test_tokens_and_braces_in_a_row_are_not_expanded() -> None:
    icl = read(
        ice_template={"template": {"round": TURNS}},
        prompt_template={"template": DIALOGUE, "ice_token": "</E>"},
        retriever=ZERO,
    )
    row = {"question": "</E>{answer}", "answer": "secret"}
    assert dialogue_of(icl.prompt(row, [2]))[1:] == [
        ("HUMAN", "{question}</E>"),
        ("BOT", "{answer}"),
        ("HUMAN", "</E>{answer}"),
        ("BOT", ""),
    ]


def test_one_evaluation_renders_for_each_kind_of_model() -> None:
    icl = read(
        ice_template={"template": {"round": TURNS}},
        prompt_template={"template": DIALOGUE, "ice_token": "</E>"},
        retriever={"type": "FixKRetriever", "fix_id_list": [0]},
    )
    assert icl.final(ROW, ids=[0]) == "Sums.\n2+2=?\n4\n1+1=?"
    assert icl.final(ROW, MetaTemplate(MOSS), [0]) == "<meta><h>Sums.</h>\n<h>2+2=?</h>\n<b>4</b>\n<h>1+1=?</h>\n<b>"
    api = ApiMetaTemplate(
        {"round": [{"role": "HUMAN", "api_role": "user"}, {"role": "BOT", "api_role": "bot", "generate": True}]}
    )
    assert icl.final(ROW, api, [0])[-1] == {"role": "user", "prompt": "1+1=?"}
    chat = CHAT_TEMPLATES.get("qwen")()
    messages = [
        {"role": "system", "content": "Sums."},
        {"role": "user", "content": "2+2=?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "1+1=?"},
    ]
    assert icl.final(ROW, chat, [0]) == chat.render(messages)


def test_text_is_one_user_message_and_scored_dialogues_are_complete() -> None:
    chat = CHAT_TEMPLATES.get("qwen")()
    text = read(prompt_template={"template": "{question}"})
    assert text.final(ROW, chat) == chat.render([{"role": "user", "content": "1+1=?"}])
    scored = read(prompt_template={"template": {"round": TURNS}}, inferencer=PPL)
    turns = [{"role": "user", "content": "1+1=?"}, {"role": "assistant", "content": "2"}]
    assert scored.final(ROW, chat) == chat.render(turns, add_generation_prompt=False)


def test_prompts_yields_each_row_in_order_with_its_examples() -> None:
    icl = read(
        prompt_template={"template": "</E>{question}={answer}", "ice_token": "</E>"},
        ice_template={"template": "{question}={answer}"},
        retriever={"type": "SlidingWindowRetriever", "k": 1, "ice_separator": "", "ice_eos_token": "; "},
        inferencer={**GEN, "gen_field_replace_token": "?", "max_out_len": 5},
    )
    made = list(icl.prompts(TRAIN[:2]))
    assert made == [
        RowPrompt(0, None, (2,), "{question}</E>={answer}; 2+2=?=?", "{question}</E>={answer}; 2+2=?=?"),
        RowPrompt(1, None, (0,), "2+2=?=4; 3+3=?=?", "2+2=?=4; 3+3=?=?"),
    ]
    assert icl.inferencer.max_out_len == 5
    cfg = {"prompt_template": {"template": "{question}"}, "max_out_len": 7}
    assert InContext.from_cfg(cfg, READER).inferencer.max_out_len == 7
    own = {**cfg, "inferencer": {**GEN, "max_out_len": 5}}
    assert InContext.from_cfg(own, READER).inferencer.max_out_len == 5


def test_the_separators_of_the_retriever_apply_to_texts_but_not_to_dialogues() -> None:
    text = {"ice_template": {"template": "{answer}"}, "prompt_template": {"template": "</E>!", "ice_token": "</E>"}}
    retriever = {**TWO, "ice_separator": " | ", "ice_eos_token": " #"}
    assert read(**text, retriever=retriever).prompt(ROW, [0, 1]) == "4 | 6 #!"
    assert read(**text, retriever=TWO).prompt(ROW, []) == "\n!", "the end of examples is written without examples, too"
    assert read(**text, retriever=ZERO).prompt(ROW, []) == "!"
    mixed = {"4": "four", "6": {"round": TURNS}}
    icl = read(
        ice_template={"template": mixed},
        prompt_template={"template": DIALOGUE, "ice_token": "</E>"},
        retriever=retriever,
    )
    said = [item if isinstance(item, str) else item.get("prompt") for item in icl.examples([0, 1])]
    assert said == ["four | ", None, "3+3=?", "6", None, " | ", " #"]


def test_separators_stay_in_the_scored_prompt_and_are_not_sent() -> None:
    cfg = {
        "ice_template": {"template": "{question}<SEP>{answer}", "sep_token": "<SEP>"},
        "prompt_template": {"template": "</E>{question}<SEP>{answer}", "ice_token": "</E>", "sep_token": "<SEP>"},
        "retriever": {"type": "FixKRetriever", "fix_id_list": [1]},
    }
    scored = read(**cfg, inferencer=PPL)
    assert scored.prompt(ROW, [1]) == "3+3=?<SEP>6\n1+1=?2"
    assert scored.final(ROW, None, [1]) == "3+3=?6\n1+1=?2"
    assert read(**cfg, inferencer=GEN).prompt(ROW, [1]) == "3+3=?6\n1+1=?"


def test_the_labels_of_scoring_default_to_all_answers_of_the_rows() -> None:
    icl = read(prompt_template={"template": "{question}"}, inferencer=PPL)
    assert icl.labels([ROW, *TRAIN, ROW]) == ["2", "4", "6", "{answer}"]
    assert icl.labels([{"answer": [1]}, {"answer": [1]}, {}]) == [[1]]
    assert read(reader={"input_columns": "question"}, prompt_template={"template": "x"}).labels([ROW]) == []


def test_an_answer_without_a_column_is_not_hidden() -> None:
    icl = read(reader={"input_columns": ["question"]}, prompt_template={"template": "{question}{answer}"})
    assert icl.prompt(ROW) == "1+1=?2"


def test_an_evaluation_accepts_messages_and_dialogues_of_several_turns() -> None:
    raw = read(
        prompt_template={"type": "RawPromptTemplate", "messages": ["</E>", {"role": "user", "content": "{question}"}]},
        ice_template={"type": RawPromptTemplate, "messages": [{"role": "assistant", "content": "{answer}"}]},
        retriever=TWO,
    )
    shown = raw.prompt(ROW, [0, 1])
    assert [message["content"] for message in shown] == ["4", "6", "1+1=?"]
    assert raw.final(ROW, CHAT_TEMPLATES.get("qwen")(), [0, 1]).count("<|im_start|>assistant\n") == 3
    turns = read(prompt_template={"type": "MultiTurnPromptTemplate", "template": {"round": TURNS}}, train=())
    assert isinstance(turns.prompt_template, MultiTurnPromptTemplate)
    assert dialogue_of(turns.prompt({"question": ["a", "b"], "answer": ["c", "d"]}))[0] == ("HUMAN", "a")


def test_the_caller_can_change_a_returned_prompt_without_an_effect() -> None:
    icl = read(
        ice_template={"template": {"round": TURNS}},
        prompt_template={"template": DIALOGUE, "ice_token": "</E>"},
        retriever=TWO,
    )
    before = deepcopy(icl.prompt(ROW, [0]))
    icl.examples([0])[1]["prompt"] = "changed"
    icl.prompt(ROW, [0])[3]["prompt"] = "changed"
    assert icl.prompt(ROW, [0]) == before


# Configurations


@pytest.mark.parametrize(
    "kind",
    [
        PromptTemplate,
        "PromptTemplate",
        "opencompass.openicl.PromptTemplate",
        "a.b:PromptTemplate",
        PromptTemplateOfAnotherSuite,
    ],
)
def test_a_type_is_a_class_a_name_or_a_dotted_name(kind: object) -> None:
    assert read(prompt_template={"type": kind, "template": "{question}"}).prompt(ROW) == "1+1=?"


def test_a_configuration_accepts_objects_instead_of_dicts() -> None:
    class Shouting(PromptTemplate):
        pass

    made = read(
        reader=DatasetReader(["question"], "answer"),
        prompt_template=PromptTemplate("</E>{question}", ice_token="</E>"),
        ice_template={"type": Shouting, "template": "{answer}!"},
        retriever=KeywordSelector(1),
    )
    assert isinstance(made.ice_template, Shouting)
    assert [made.prompt for made in made.prompts([{"question": "3+3"}])] == ["6!\n3+3"]


def test_retrievers_of_a_configuration_are_selectors() -> None:
    class Length:
        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            return [[1.0, float(len(text))] for text in texts]

    place = {"ice_template": {"template": "x"}, "prompt_template": {"template": "</E>", "ice_token": "</E>"}}
    reader = {"input_columns": ["question"], "output_column": "answer"}
    for retriever, ids in (
        ({"type": "RandomRetriever", "ice_num": 2, "seed": 3}, (0, 1)),
        ({"type": "RandomRetriever"}, None),
        ({"type": "SlidingWindowRetriever", "k": 2}, (1, 2)),
        ({"type": "BM25Retriever", "ice_num": 1}, (1,)),
        ({"type": "TopkRetriever", "ice_num": 1, "sentence_transformers_model_name": "m"}, (2,)),
        ({"type": "FixKRetriever", "fix_id_list": [2, 0]}, (2, 0)),
        ({"type": "ZeroRetriever"}, ()),
    ):
        icl = InContext.from_cfg({**place, "retriever": retriever}, reader, train=TRAIN, embedder=Length())
        (chosen,) = icl.ids([{"question": "what is 3+3=? and why"}])
        assert ids is None or sorted(chosen) == sorted(ids), retriever
    found = places(lambda: read(**place, retriever={"type": "TopkRetriever"}))
    assert found == ("infer_cfg['retriever'].embedder",)
    first = InContext(
        DatasetReader("question", "answer"),
        PromptTemplate("</E>", ice_token="</E>"),
        ice_template=PromptTemplate("x"),
        retriever=StaticSelector(2),
        train=TRAIN,
    )
    assert first.ids([ROW]) == [(0, 1)]


def test_reading_does_not_change_the_configuration() -> None:
    cfg = {
        "ice_template": {"template": {"round": TURNS}},
        "prompt_template": {"template": DIALOGUE, "ice_token": "</E>"},
        "retriever": TWO,
    }
    before, rows = deepcopy(cfg), deepcopy(TRAIN)
    icl = InContext.from_cfg(cfg, READER, train=rows)
    list(icl.prompts([ROW, *rows], MetaTemplate(MOSS)))
    assert cfg == before and rows == TRAIN


def test_the_error_names_each_problem_of_a_configuration() -> None:
    found = places(
        lambda: read(
            reader={"input_columns": ["question"], "output_colum": "answer", "input_template": {"template": 1}},
            promt_template={},
            prompt_template={"type": "PromptTemplat", "template": "x"},
            ice_template={"template": "x", "ice_tokn": "</E>"},
            retriever={"type": "FixKRetriever", "fix_id_list": [0, -1, "2"], "ice_seperator": ""},
            inferencer={"gen_field_replace_token": 1},
        )
    )
    assert found == (
        "infer_cfg.promt_template",
        "reader_cfg.output_colum",
        "reader_cfg['input_template'].template",
        "infer_cfg['prompt_template'].type",
        "infer_cfg['ice_template'].ice_tokn",
        "infer_cfg['retriever'].ice_seperator",
        "infer_cfg['retriever'].fix_id_list",
        "infer_cfg['inferencer']",
    )


@pytest.mark.parametrize(
    ("cfg", "place"),
    [
        ({}, "prompt_template"),
        ({"prompt_template": "x"}, "infer_cfg['prompt_template']"),
        ({"prompt_template": {"type": PromptTemplate}}, "infer_cfg['prompt_template'].template"),
        ({**ASKS, "retriever": "Zero"}, "infer_cfg['retriever']"),
        ({**ASKS, "retriever": {"type": "ZeroRetreiver"}}, "infer_cfg['retriever'].type"),
        ({**ASKS, "retriever": {"type": "MDLRetriever"}}, "infer_cfg['retriever'].type"),
        ({**ASKS, "retriever": {**ZERO, "ice_separator": 1}}, "infer_cfg['retriever'].ice_separator"),
        ({**ASKS, "retriever": {"type": "FixKRetriever"}}, "infer_cfg['retriever'].fix_id_list"),
        ({**ASKS, "retriever": {"type": "RandomRetriever", "ice_num": -1}}, "infer_cfg['retriever'].k"),
        (
            {**ASKS, "inferencer": {**GEN, "gen_field_replace_token": 1}},
            "infer_cfg['inferencer'].gen_field_replace_token",
        ),
        ({**ASKS, "retriever": TWO}, "ice_template"),
        ({"ice_template": {"template": "x"}, "retriever": TWO}, "ice_template.ice_token"),
        (
            {"prompt_template": {"template": "x"}, "ice_template": {"template": "x"}, "retriever": TWO},
            "prompt_template.ice_token",
        ),
        (
            {
                "prompt_template": {"template": "</E>x", "ice_token": "</E>"},
                "ice_template": {"template": {"round": TURNS}},
                "retriever": TWO,
            },
            "prompt_template",
        ),
        (
            {
                "prompt_template": {"template": "</E>x", "ice_token": "</E>"},
                "ice_template": {"template": "x"},
                "retriever": {"type": "FixKRetriever", "fix_id_list": [1, 5, 3]},
            },
            "retriever.ids",
        ),
    ],
)  # fmt: skip
def test_incompatible_parts_are_refused_before_the_first_request(cfg: Any, place: str) -> None:
    assert places(lambda: read(**cfg)) == (place,)


def test_a_configuration_of_another_type_is_refused() -> None:
    error = refused(lambda: InContext.from_cfg([], READER))  # type: ignore[arg-type]
    assert (error.name, error.value) == ("infer_cfg", "list")
    template = {"template": "x"}
    assert places(lambda: read(reader="question", prompt_template=template)) == ("reader_cfg",)
    assert places(lambda: read(reader={}, prompt_template=template)) == ("reader_cfg.input_columns",)


def test_the_error_names_missing_columns_before_the_first_request() -> None:
    reader = {"input_columns": ["question"], "output_column": "nosuch"}
    assert places(lambda: read(reader=reader, prompt_template={"template": "x"})) == ("train.nosuch",)
    icl = read(prompt_template={"template": "x"})
    assert places(lambda: list(icl.prompts([{"answer": "2"}]))) == ("test.topic", "test.question")


def test_the_error_names_the_cause_of_examples_that_cannot_be_rendered() -> None:
    text = read(ice_template={"template": "</E>{answer}", "ice_token": "</E>"}, retriever=TWO)
    error = refused(lambda: text.prompt(ROW, [0, 7, -1, True]))
    assert (error.name, error.value) == ("ids", "7, -1, True")
    without = read(prompt_template={"template": "x"})
    assert refused(lambda: without.prompt(ROW, [0])).name == "ice_template"
    nowhere = read(prompt_template={"template": "x"}, ice_template={"template": "y"})
    assert refused(lambda: nowhere.prompt(ROW, [0])).name == "ice_token"
    labelled = {"template": {"4": "four", "six": "6"}}
    icl = read(ice_template=labelled, prompt_template={"template": "</E>", "ice_token": "</E>"}, retriever=ZERO)
    assert refused(lambda: icl.prompt(ROW, [0, 1])).name == "6"
    partly = read([{**TRAIN[0]}, {"question": "x", "topic": "y"}], ice_template=labelled,
                  prompt_template={"template": "</E>", "ice_token": "</E>"})  # fmt: skip
    error = refused(lambda: partly.prompt(ROW, [0, 1]))
    assert (error.path, error.name) == ("train[1]", "answer")


def test_an_unused_ice_token_is_accepted_as_shipped_and_warned_about() -> None:
    cfg = {
        "ice_template": {"template": {"A": {"round": TURNS}, "B": {"round": TURNS}}, "ice_token": "</E>"},
        "inferencer": PPL,
    }
    rows = [{**row, "answer": "A"} for row in TRAIN]
    assert warned(lambda: read(rows, **cfg, retriever=TWO)) == ["A, B"]
    with pytest.warns(InContextWarning):
        icl = read(rows, **cfg, retriever=TWO)
    assert dialogue_of(icl.prompt(ROW, [0, 1], "B")) == [("HUMAN", "1+1=?"), ("BOT", "2")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(**cfg, retriever=ZERO)


def test_a_row_that_fails_is_numbered() -> None:
    icl = read(prompt_template={"template": {"round": [{"role": "OTHER", "prompt": "{question}"}]}})
    error = refused(lambda: list(icl.prompts([ROW], MetaTemplate(MOSS))))
    assert (error.path, [place for place, _ in error.problems]) == ("rows[0]", ["[1].role"])


def test_a_custom_retriever_selects_the_examples() -> None:
    class Longest:
        def select(self, query: str, examples: Sequence[Example]) -> Sequence[Example]:
            return sorted(examples, key=lambda example: -len(example.input))[:1]

    icl = read(ice_template={"template": "</E>{question};{answer}", "ice_token": "</E>"}, retriever=Longest())
    assert icl.ids([ROW]) == [(2,)]
