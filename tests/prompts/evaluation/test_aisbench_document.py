"""Snippets of the AISBench document about prompt templates, with our names and the output of the document."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit.prompts.chat_templates import CHAT_TEMPLATES
from agentkit.prompts.evaluation import (
    FixKRetriever,
    GenInferencer,
    InContext,
    MMPromptTemplate,
    MultiTurnGenInferencer,
    MultiTurnPromptTemplate,
    PromptTemplate,
    ZeroRetriever,
)
from tests.prompts.evaluation.refusals import places

BOTH = {"input_columns": ["anything", "question"], "output_column": "answer"}
ONE = {"input_columns": ["question"], "output_column": "answer"}
ROW = {"anything": "blabla", "question": "1+1=?", "answer": "2"}
SYSTEM = {"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": "Solve the following questions."}
ASKS = {"role": "HUMAN", "prompt": "Question: {question}"}
ANSWERS = {"role": "BOT", "prompt": "Answer: {answer}"}
TRAIN = [
    {"question": "2+2=?", "answer": "4", "irrelavent_infos": "blabla"},
    {"question": "3+3=?", "answer": "6", "irrelavent_infos": "blabla"},
]
TEST = {"question": "1+1=?", "answer": "2", "irrelavent_infos": "blabla"}
FEW_SHOT = {
    "ice_template": {"type": PromptTemplate, "template": "{question}\n{answer}"},
    "prompt_template": {
        "type": PromptTemplate,
        "template": "Solve the following questions.\n</E>{question}\n{answer}",
        "ice_token": "</E>",
    },
    "retriever": {"type": FixKRetriever, "fix_id_list": [0, 1]},
    "inferencer": {"type": GenInferencer},
}


def zero_shot(template: Any, kind: Any = PromptTemplate) -> dict[str, Any]:
    return {
        "prompt_template": {"type": kind, "template": template},
        "retriever": {"type": ZeroRetriever},
        "inferencer": {"type": GenInferencer},
    }


def visible_items(prompt: Any) -> list[Any]:
    """Return the items of a prompt as the document prints them: without section markers and empty texts."""
    return [item for item in prompt if item != "" and not (isinstance(item, dict) and "section" in item)]


def turn(role: str, prompt: str) -> dict[str, str]:
    return {"role": role, "prompt": prompt}


def test_the_first_prompt_of_the_document() -> None:
    train = [{"question": "1+1=?", "answer": "2"}, {"question": "3+9=?", "answer": "12"}]
    icl = InContext.from_cfg(FEW_SHOT, ONE, train=train)
    (made,) = icl.prompts([{"question": "5+6=?", "answer": "11"}])
    assert made.final == "Solve the following questions.\n1+1=?\n2\n3+9=?\n12\n5+6=?\n"


def test_a_text_with_columns_hides_the_answer() -> None:
    template = "{anything}\nQuestion: {question}\nAnswer: {answer}"
    prompt = InContext.from_cfg(zero_shot(template), BOTH).prompt(ROW)
    assert prompt == "blabla\nQuestion: 1+1=?\nAnswer: "  # the page shows no space at the end of a line
    assert InContext.from_cfg(zero_shot("{nothing} {question}"), BOTH).prompt(ROW) == "{nothing} 1+1=?"


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ({"round": [ASKS, ANSWERS]}, [turn("HUMAN", "Question: 1+1=?"), turn("BOT", "Answer: ")]),
        (
            {
                "round": [
                    *(turn("HUMAN", "Question: 2+2=?"), turn("BOT", "Answer: 4")),
                    *(turn("HUMAN", "Question: 3+3=?"), turn("BOT", "Answer: 6")),
                    *(ASKS, ANSWERS),
                ]
            },
            [
                *(turn("HUMAN", "Question: 2+2=?"), turn("BOT", "Answer: 4")),
                *(turn("HUMAN", "Question: 3+3=?"), turn("BOT", "Answer: 6")),
                *(turn("HUMAN", "Question: 1+1=?"), turn("BOT", "Answer: ")),
            ],
        ),
        (
            {"begin": [SYSTEM], "round": [ASKS, ANSWERS]},
            [SYSTEM, turn("HUMAN", "Question: 1+1=?"), turn("BOT", "Answer: ")],
        ),
    ],
    ids=["one turn", "several turns", "a system text"],
)
def test_dialogues_become_the_lists_that_are_printed(template: Any, printed: list[Any]) -> None:
    assert visible_items(InContext.from_cfg(zero_shot(template), BOTH).prompt(ROW)) == printed


def test_the_last_prompt_of_the_model_is_not_sent() -> None:
    icl = InContext.from_cfg(zero_shot({"round": [ASKS, ANSWERS]}), BOTH)
    for model in ("qwen", "internlm2"):
        final = icl.final(ROW, CHAT_TEMPLATES.get(model)())
        assert "Question: 1+1=?" in final and "Answer" not in final


@pytest.mark.parametrize(
    ("mode", "after"),
    [("every", [["answer1"], ["answer1", "answer2"]]), ("every_with_gt", [["2"], ["2", "4"]]), ("last", [["2", "4"]])],
)
def test_the_requests_of_turns_are_equal_to_the_document(mode: str, after: list[list[str]]) -> None:
    cfg = zero_shot({"round": [turn("HUMAN", "{question}"), turn("BOT", "{answer}")]}, MultiTurnPromptTemplate)
    cfg["inferencer"] = {"type": MultiTurnGenInferencer, "infer_mode": mode}
    row = {"question": ["1+1=?", "2+2=?", "3+3=?"], "answer": ["2", "4", "6"]}
    requests = InContext.from_cfg(cfg, ONE).requests(row)
    asked, found = [] if mode == "last" else [[]], []
    asked += after
    for number, before in enumerate(asked, 1):
        found.append(visible_items(next(requests) if number == 1 else requests.send(f"answer{number - 1}")))
        turns = [item for pair in zip(row["question"], before, strict=False) for item in pair]
        texts = [*turns, row["question"][len(before)]]
        assert found[-1] == [turn("BOT" if at % 2 else "HUMAN", text) for at, text in enumerate(texts)]
    with pytest.raises(StopIteration):
        requests.send("the last")


def media(kind: str, prefix: str) -> dict[str, Any]:
    return {"type": f"{kind}_url", f"{kind}_url": {"url": f"{prefix}{{{kind}}}"}}


@pytest.mark.parametrize(
    "prefixes",
    [
        dict.fromkeys(("image", "video", "audio"), "file://"),
        {"image": "data:image/jpeg;base64,", "video": "data:video/jpeg;base64,", "audio": "data:audio/wav;base64,"},
    ],
    ids=["addresses", "base64"],
)
def test_media_become_parts_in_the_order_of_the_content(prefixes: dict[str, str]) -> None:
    parts = {kind: media(kind, prefix) for kind, prefix in prefixes.items()}
    human = {
        "role": "HUMAN",
        "prompt_mm": {"text": {"type": "text", "text": "{anything}\nQuestion: {question}"}, **parts},
    }
    tagged = [
        ("TEXT", "What is this?"),
        ("IMAGE", "{image_data}"),
        ("AUDIO", "{audio_data}"),
        ("VIDEO", "{video_data}"),
    ]
    question = "".join(f"<AIS_{kind}_START>{text}<AIS_CONTENT_TAG>" for kind, text in tagged)
    row = {"anything": "blabla", "question": question, "answer": "a cat"}
    prompt = InContext.from_cfg(zero_shot({"round": [human]}, MMPromptTemplate), BOTH).prompt(row)
    # Printed under `prompt` and not `prompt_mm`; without `file://`, and with video/mp4 instead of jpeg in the template.
    assert visible_items(prompt) == [
        {
            "role": "HUMAN",
            "prompt_mm": [
                {"type": "text", "text": "blabla\nQuestion: What is this?"},
                {"type": "image_url", "image_url": {"url": f"{prefixes['image']}{{image_data}}"}},
                {"type": "audio_url", "audio_url": {"url": f"{prefixes['audio']}{{audio_data}}"}},
                {"type": "video_url", "video_url": {"url": f"{prefixes['video']}{{video_data}}"}},
            ],
        }
    ]


def test_the_prompt_shows_examples_as_the_pseudo_code_does() -> None:
    icl = InContext.from_cfg(FEW_SHOT, ONE, train=TRAIN)
    assert icl.prompt(TEST, [0, 1]) == "Solve the following questions.\n2+2=?\n4\n3+3=?\n6\n1+1=?\n"
    # The pseudo code fills the columns of the row in the examples too; here a value is not expanded again.
    icl = InContext.from_cfg(FEW_SHOT, ONE, train=[{"question": "What is {question}?", "answer": "x"}, TRAIN[0]])
    assert "What is {question}?\nx" in icl.prompt(TEST, [0, 1])


def test_examples_of_a_dialogue_are_turns() -> None:
    turns = [turn("HUMAN", "{question}"), turn("BOT", "{answer}")]
    cfg = {
        **FEW_SHOT,
        "ice_template": {"type": PromptTemplate, "template": {"round": turns}},
        "prompt_template": {
            "type": PromptTemplate,
            "template": {"begin": [SYSTEM, "</E>"], "round": turns},
            "ice_token": "</E>",
        },
    }
    (made,) = InContext.from_cfg(cfg, ONE, train=TRAIN).prompts([TEST])
    assert visible_items(made.prompt) == [
        SYSTEM,
        *(turn("HUMAN", "2+2=?"), turn("BOT", "4"), turn("HUMAN", "3+3=?"), turn("BOT", "6")),
        *(turn("HUMAN", "1+1=?"), turn("BOT", "")),
    ]


def test_one_template_can_render_the_examples_and_the_prompt() -> None:
    both = {"type": PromptTemplate, "template": "</E>Q: {question}\nA: {answer}", "ice_token": "</E>"}
    whole = {**FEW_SHOT, "ice_template": {"template": "Q: {question}\nA: {answer}"}, "prompt_template": both}
    short = {key: value for key, value in FEW_SHOT.items() if key != "prompt_template"} | {"ice_template": both}
    made = [InContext.from_cfg(cfg, ONE, train=TRAIN).prompt(TEST, [0, 1]) for cfg in (whole, short)]
    assert made == ["Q: 2+2=?\nA: 4\nQ: 3+3=?\nA: 6\nQ: 1+1=?\nA: "] * 2


def test_a_template_of_examples_renders_the_prompt_without_a_token() -> None:
    # The original raises, and the document promises that it works.
    cfg = {
        "ice_template": {"type": PromptTemplate, "template": "Q: {question}\nA: {answer}"},
        "retriever": {"type": ZeroRetriever},
        "inferencer": {"type": GenInferencer},
    }
    assert InContext.from_cfg(cfg, ONE).final(TEST) == "Q: 1+1=?\nA: "
    shows = {**cfg, "retriever": {"type": FixKRetriever, "fix_id_list": [0]}}
    assert places(lambda: InContext.from_cfg(shows, ONE, train=TRAIN)) == ("ice_template.ice_token",)
