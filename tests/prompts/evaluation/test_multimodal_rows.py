"""Prompts with media: tagged content of a row, sent as parts in the form that a template gives each kind."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.prompts.evaluation import (
    ApiMetaTemplate,
    MetaTemplate,
    MMPromptTemplate,
    PromptList,
    chat_messages,
)
from agentkit_prompts.evaluation.multimodal import KINDS, read_tags
from tests.prompts.evaluation.refusals import places, refused, warned

END_TAG = "<AIS_CONTENT_TAG>"
START_TAGS = [f"<AIS_{kind.upper()}_START>" for kind in KINDS]
QUESTION = (
    f"<AIS_TEXT_START>What is this?{END_TAG}<AIS_IMAGE_START>IMG{END_TAG}"
    f"<AIS_AUDIO_START>AUD{END_TAG}<AIS_VIDEO_START>VID{END_TAG}"
)
META: dict[str, Any] = {
    "round": [
        {"role": "HUMAN", "api_role": "user", "begin": "[", "end": "]"},
        {"role": "BOT", "api_role": "assistant", "begin": ">", "generate": True},
    ]
}


def url(kind: str, prefix: str) -> dict[str, Any]:
    return {"type": f"{kind}_url", f"{kind}_url": {"url": f"{prefix}{{{kind}}}"}}


BY_URL: dict[str, Any] = {
    "text": {"type": "text", "text": "{anything}\nQuestion: {question}"},
    "image": url("image", "file://"),
    "video": url("video", "file://"),
    "audio": url("audio", "file://"),
}
BY_BASE64: dict[str, Any] = {
    "text": {"type": "text", "text": "{anything}\nQuestion: {question}"},
    "image": url("image", "data:image/jpeg;base64,"),
    "video": url("video", "data:video/jpeg;base64,"),
    "audio": url("audio", "data:audio/wav;base64,"),
}


def template(*items: dict[str, Any] | str, **sections: Any) -> MMPromptTemplate:
    return MMPromptTemplate({"round": list(items), **sections})


def human(parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "HUMAN", "prompt_mm": parts}


def parts_of(prompt: PromptList) -> list[Any]:
    return [item["prompt_mm"] for item in prompt if isinstance(item, dict) and "prompt_mm" in item]


class TestTheDocument:
    # The document prints the addresses of the first example without the `file://` that its template writes before
    # them; the request contains it, as in the base64 example.
    @pytest.mark.parametrize(
        ("parts", "image", "audio", "video"),
        [
            (BY_URL, "file://IMG", "file://AUD", "file://VID"),
            (
                BY_BASE64,
                "data:image/jpeg;base64,IMG",
                "data:audio/wav;base64,AUD",
                "data:video/jpeg;base64,VID",
            ),
        ],
        ids=["url", "base64"],
    )
    def test_each_piece_becomes_a_part_and_each_column_is_filled(
        self, parts: dict[str, Any], image: str, audio: str, video: str
    ) -> None:
        row = {"anything": "blabla", "question": QUESTION, "answer": "a cat"}
        prompt = template(human(parts)).item(row, hide="answer")
        content = [
            {"type": "text", "text": "blabla\nQuestion: What is this?"},
            {"type": "image_url", "image_url": {"url": image}},
            {"type": "audio_url", "audio_url": {"url": audio}},
            {"type": "video_url", "video_url": {"url": video}},
        ]
        assert parts_of(prompt) == [content]
        assert ApiMetaTemplate(META).parse(prompt) == [{"role": "user", "prompt": content}]
        assert chat_messages(ApiMetaTemplate(META).parse(prompt)) == [{"role": "user", "content": content}]
        assert ApiMetaTemplate().parse(prompt) == content

    def test_the_column_content_precedes_the_column_question(self) -> None:
        row = {"anything": "x", "content": "<AIS_TEXT_START>from content", "question": "a column like any other"}
        assert parts_of(template(human(BY_URL)).item(row)) == [[{"type": "text", "text": "x\nQuestion: from content"}]]

    def test_an_address_can_be_text(self) -> None:
        parts = {"image": {"type": "image_url", "image_url": "{image}"}}
        row = {"content": "<AIS_IMAGE_START>a.png<AIS_CONTENT_TAG><AIS_IMAGE_START>b.png<AIS_CONTENT_TAG>"}
        assert parts_of(template(human(parts)).item(row)) == [
            [{"type": "image_url", "image_url": "a.png"}, {"type": "image_url", "image_url": "b.png"}]
        ]

    @pytest.mark.parametrize("parts", [BY_URL, BY_BASE64], ids=["url", "base64"])
    def test_an_address_with_two_schemes_is_a_warning(self, parts: dict[str, Any]) -> None:
        row = {"anything": "x", "content": "<AIS_IMAGE_START>https://x/y.jpg<AIS_CONTENT_TAG>"}
        assert warned(lambda: template(human(parts)).item(row)) == ["prompt_mm"]


class TestFilling:
    def test_the_answer_is_hidden_and_plain_prompts_are_filled(self) -> None:
        row = {"content": "<AIS_TEXT_START>hi", "answer": "secret", "anything": "x"}
        items = [human(BY_URL), {"role": "BOT", "prompt": "({answer})"}]
        asked = template(*items, begin="About {anything}. ").item(row, hide="answer", instead="?")
        assert [item for item in asked if isinstance(item, str) or "role" in item] == [
            "About x. ",
            {"role": "HUMAN", "prompt_mm": [{"type": "text", "text": "x\nQuestion: hi"}]},
            {"role": "BOT", "prompt": "(?)"},
        ]
        scored = template(*items).label_item(row)
        assert {"role": "BOT", "prompt": "(secret)"} in scored

    def test_values_are_not_expanded_and_unknown_columns_stay(self) -> None:
        row = {"content": "<AIS_TEXT_START>a {question} {answer} {}", "answer": "X"}
        parts = {"text": {"type": "text", "text": "{nothing}: {question}", "nested": [{"a": "{answer}"}, 5]}}
        assert parts_of(template(human(parts)).item(row)) == [
            [{"type": "text", "text": "{nothing}: a {question} {answer} {}", "nested": [{"a": "X"}, 5]}]
        ]

    def test_worked_examples_replace_the_token(self) -> None:
        parts = {"text": {"type": "text", "text": "{question}"}}
        dialogue = {"begin": ["</E>"], "round": [human(parts), {"role": "BOT", "prompt": "{answer}"}]}
        shown = MMPromptTemplate(dialogue, ice_token="</E>")
        assert (shown.places(), template(human(parts)).places()) == ("items", "")
        example = shown.ice_item({"content": "1+1", "answer": "2"})
        assert example == [
            {"section": "ice", "pos": "begin"},
            {"role": "HUMAN", "prompt_mm": [{"type": "text", "text": "1+1"}]},
            {"role": "BOT", "prompt": "2"},
            {"section": "ice", "pos": "end"},
        ]
        prompt = shown.item({"content": "2+2", "answer": "4"}, ice=example, hide="answer")
        assert ApiMetaTemplate(META).parse(prompt) == [
            {"role": "user", "prompt": [{"type": "text", "text": "1+1"}]},
            {"role": "assistant", "prompt": ">2"},
            {"role": "user", "prompt": [{"type": "text", "text": "2+2"}]},
        ]

    def test_an_item_has_the_kinds_of_media_of_its_parts(self) -> None:
        texts = {"text": {"type": "text", "text": "look: {question}"}}
        prompt = template(human(BY_BASE64), begin=[human(texts)]).item({"content": QUESTION, "anything": ""})
        assert [[part["type"] for part in parts] for parts in parts_of(prompt)] == [
            ["text"],
            ["text", "image_url", "audio_url", "video_url"],
        ]

    def test_a_prompt_does_not_change_the_row_or_the_template(self) -> None:
        dialogue = {"round": [human(deepcopy(BY_URL))]}
        shown = MMPromptTemplate(dialogue)
        prompt = shown.item({"content": QUESTION})
        parts_of(prompt)[0][1]["image_url"]["url"] = "changed"
        assert dialogue == {"round": [human(BY_URL)]}
        assert parts_of(shown.item({"content": QUESTION}))[0][1]["image_url"]["url"] == "file://IMG"


CAT = {"content": f"<AIS_TEXT_START>see{END_TAG}<AIS_IMAGE_START>https://example.org/cat.png{END_TAG}"}
AS_IT_IS = {
    "text": {"type": "text", "text": "{question}"},
    "image": {"type": "image_url", "image_url": {"url": "{image}"}},
}


class TestModels:
    def test_the_text_of_a_completion_model_has_the_names_of_media(self) -> None:
        prompt = template(human(AS_IT_IS)).item(CAT)
        assert MetaTemplate(META).parse(prompt) == "[see\n[image: cat.png]]>"
        assert MetaTemplate().parse(prompt) == "see\n[image: cat.png]"

    def test_text_and_media_of_one_role_are_one_message(self) -> None:
        prompt = template("first ", {"role": "HUMAN", "prompt": "then"}, human(AS_IT_IS)).item(CAT)
        sent = ApiMetaTemplate({"round": [{"role": "HUMAN", "api_role": "user"}]}).parse(prompt)
        assert sent == [
            {
                "role": "user",
                "prompt": [
                    {"type": "text", "text": "first \nthen"},
                    {"type": "text", "text": "see"},
                    {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
                ],
            }
        ]

    def test_an_item_can_have_text_and_media(self) -> None:
        prompt = template({**human(AS_IT_IS), "prompt": "Look!"}, {"role": "BOT", "prompt": "ok"}).item(CAT)
        image = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}
        look, see, ok = ({"type": "text", "text": text} for text in ("Look!", "see", "ok"))
        assert ApiMetaTemplate(META).parse(prompt) == [{"role": "user", "prompt": [look, see, image]}]
        assert ApiMetaTemplate().parse(prompt) == [look, see, image, ok]

    def test_a_completion_model_refuses_a_part_of_an_unknown_kind(self) -> None:
        parts: tuple[tuple[dict[str, Any], str], ...] = (
            ({"type": "smell"}, "content part"),
            ({"type": "text"}, "content part.text"),
            ({"type": "image_url", "image_url": {"url": 5}}, "content part.image_url.url"),
            ({"type": "image_url", "image_url": "http://"}, "content part.image_url"),
        )
        for part, place in parts:
            prompt = PromptList([{"role": "HUMAN", "prompt_mm": [part]}])
            assert places(lambda prompt=prompt: MetaTemplate().parse(prompt)) == (place,)  # type: ignore[misc]


class TestTags:
    @pytest.mark.parametrize(
        ("content", "pieces"),
        [
            ("", [("text", "")]),
            ("no tags at all", [("text", "no tags at all")]),
            ("<AIS_TEXT_START>no end", [("text", "no end")]),
            (f" <AIS_TEXT_START>a{END_TAG}\n<AIS_TEXT_START>{END_TAG}", [("text", "a"), ("text", "")]),
            (f"lead <AIS_IMAGE_START>i{END_TAG} tail", [("text", "lead "), ("image", "i"), ("text", " tail")]),
            ("<AIS_TEXT_START>a<AIS_IMAGE_START>b", [("text", "a"), ("image", "b")]),
            ("<AIS_TEXT_START>a<AIS_TEXT_START>b", [("text", "ab")]),
            (f"a{END_TAG}", [("text", "a")]),
        ],
    )
    def test_content_is_split_at_its_tags(self, content: str, pieces: list[tuple[str, str]]) -> None:
        assert read_tags(content) == pieces

    @given(st.lists(st.sampled_from([*START_TAGS, END_TAG, "a", " b ", "<AIS_"]), max_size=12))
    def test_no_text_is_lost(self, tokens: list[str]) -> None:
        content = "".join(tokens)
        for tag in (*START_TAGS, END_TAG):
            content = content.replace(tag, "")
        said = "".join(piece for _, piece in read_tags("".join(tokens)))
        assert said.replace(" ", "") == content.replace(" ", "")


class TestBadInput:
    def test_a_row_without_content_is_refused(self) -> None:
        missing = refused(lambda: template(human(BY_URL)).item({"answer": "x"}))
        invalid = refused(lambda: template(human(BY_URL)).item({"content": None}))
        assert (missing.name, missing.value, invalid.name, invalid.value) == ("content", None, "content", "NoneType")
        assert template({"role": "HUMAN", "prompt": "{answer}"}).item({"answer": "x"})[1] == {
            "role": "HUMAN",
            "prompt": "x",
        }

    def test_the_error_names_content_without_an_item(self) -> None:
        texts = {"text": {"type": "text", "text": "{question}"}}
        assert places(lambda: template(human(texts)).item({"content": QUESTION})) == ("image", "audio", "video")

    def test_the_error_names_each_problem_of_a_template(self) -> None:
        items = [
            {"role": "HUMAN", "prompt_mm": {"img": {}, "text": "{question}", "image": {"type": "image_url"}}},
            {"role": "HUMAN", "prompt_mm": "x"},
            {"prompt": 5},
            7,
        ]
        found = places(lambda: MMPromptTemplate({"round": items}, ice_token=5))  # type: ignore[arg-type]
        assert found == (
            "ice_token",
            "round[2].role",
            "round[2].prompt",
            "round[3]",
            "round[0].prompt_mm.img",
            "round[0].prompt_mm.text",
            "round[0].prompt_mm.image",
            "round[1].prompt_mm",
        )
        assert places(lambda: MMPromptTemplate("{question}")) == ("template",)  # type: ignore[arg-type]
