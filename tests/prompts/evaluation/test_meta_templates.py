"""Meta templates: the requests of a completion model and of an API for the same prompt."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from agentkit.prompts.evaluation import (
    ApiMetaTemplate,
    InContextWarning,
    MetaTemplate,
    PromptList,
    PromptTemplate,
)
from tests.prompts.evaluation.refusals import places, refused, warned

# The meta template of the OpenCompass document: a model with three inner roles, and a system role that is reserved.
MOSS: dict[str, Any] = {
    "begin": "You are a careful model.\n",
    "round": [
        {"role": "HUMAN", "begin": "<|HUMAN|>:", "end": "脷\n"},
        {"role": "THOUGHTS", "begin": "<|Inner Thoughts|>:", "end": "茔\n", "prompt": "None"},
        {"role": "COMMANDS", "begin": "<|Commands|>:", "end": "蝮\n", "prompt": "None"},
        {"role": "RESULTS", "begin": "<|Results|>:", "end": "兒\n", "prompt": "None"},
        {"role": "BOT", "begin": "<|MOSS|>:", "generate": True, "end": "氡\n"},
    ],
    "end": "end of conversion",
    "reserved_roles": [{"role": "SYSTEM", "begin": "<|SYSTEM|>: ", "end": "\n"}],
    "eos_token_id": 65605,
}
INNER = "<|Inner Thoughts|>:None茔\n<|Commands|>:None蝮\n<|Results|>:None兒\n"
PLAIN: dict[str, Any] = {
    "round": [
        {"role": "HUMAN", "begin": "H: ", "end": "<eoh>\n", "api_role": "user"},
        {"role": "BOT", "begin": "B: ", "end": "<eob>\n", "api_role": "assistant", "generate": True},
    ],
    "reserved_roles": [{"role": "SYSTEM", "begin": "S: ", "end": "\n", "api_role": "system"}],
}
API: dict[str, Any] = {
    "round": [{"role": "HUMAN", "api_role": "user"}, {"role": "BOT", "api_role": "assistant", "generate": True}],
    "reserved_roles": [{"role": "SYSTEM", "api_role": "system"}],
}
LAKE = {"input": "Which lake is deep?", "A": "Como", "B": "Aral", "target": "A"}


def human(prompt: str, **more: Any) -> dict[str, Any]:
    return {"role": "HUMAN", "prompt": prompt, **more}


def bot(prompt: str, **more: Any) -> dict[str, Any]:
    return {"role": "BOT", "prompt": prompt, **more}


def quiz(**sections: Any) -> PromptList:
    """The dataset template of the document, for one row."""
    template = {
        "begin": [{"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": "Choose a letter."}, "</E>"],
        "round": [human("{input}\nA. {A}\nB. {B}\nAnswer: "), bot("{target}")],
        **sections,
    }
    prompt = PromptTemplate(template, ice_token="</E>").item(LAKE)
    assert isinstance(prompt, PromptList)
    return prompt


class TestTheDocument:
    def test_a_round_has_each_role_in_order_with_defaults_for_missing_prompts(self) -> None:
        text = MetaTemplate(MOSS).parse(PromptList([human("hi"), bot("ho")]), "ppl")
        assert text == (f"You are a careful model.\n<|HUMAN|>:hi脷\n{INNER}<|MOSS|>:ho氡\nend of conversion")

    def test_a_prompt_of_generation_ends_after_the_begin_of_the_role_of_the_model(self) -> None:
        text = MetaTemplate(MOSS).parse(PromptList([human("hi"), bot("ho")]), "gen")
        assert text == f"You are a careful model.\n<|HUMAN|>:hi脷\n{INNER}<|MOSS|>:"

    def test_the_dataset_fills_the_roles_and_a_reserved_role_begins_the_text(self) -> None:
        question = "<|HUMAN|>:Which lake is deep?\nA. Como\nB. Aral\nAnswer: 脷\n"
        start = f"You are a careful model.\n<|SYSTEM|>: Choose a letter.\n{question}{INNER}<|MOSS|>:"
        assert MetaTemplate(MOSS).parse(quiz(), "gen") == start
        assert MetaTemplate(MOSS).parse(quiz(), "ppl") == f"{start}A氡\nend of conversion"

    def test_the_end_of_a_dataset_precedes_the_end_of_the_model(self) -> None:
        text = MetaTemplate(MOSS).parse(quiz(end="that was the prompt\n"), "ppl")
        assert isinstance(text, str)
        assert text.endswith("<|MOSS|>:A氡\nthat was the prompt\nend of conversion")

    def test_a_field_of_the_dataset_overrides_the_meta_template(self) -> None:
        prompt = PromptList([human("q", begin="[", end="]"), {"role": "THOUGHTS", "prompt": "hm"}, bot("a", end="!")])
        assert MetaTemplate(MOSS).parse(prompt, "ppl") == (
            "You are a careful model.\n[q]<|Inner Thoughts|>:hm茔\n<|Commands|>:None蝮\n<|Results|>:None兒\n"
            "<|MOSS|>:a!end of conversion"
        )

    def test_a_fallback_role_replaces_a_missing_reserved_role(self) -> None:
        bare = {key: value for key, value in MOSS.items() if key != "reserved_roles"}
        text = MetaTemplate(bare).parse(quiz(), "gen")
        assert isinstance(text, str)
        assert text.startswith("You are a careful model.\n<|HUMAN|>:Choose a letter.脷\n<|HUMAN|>:Which lake")

    def test_a_template_without_a_round_uses_the_round_of_the_dataset(self) -> None:
        meta = MetaTemplate({"begin": "<s>", "end": "</s>"})
        prompt = PromptList([human("q", begin="U:", end="\n"), bot("a", begin="A:", generate=True)])
        assert meta.parse(prompt, "ppl") == "<s>U:q\nA:a</s>"
        assert meta.parse(prompt, "gen") == "<s>U:q\nA:"
        reserved = MetaTemplate({"reserved_roles": [{"role": "BOT", "begin": "B:", "generate": True}]})
        assert reserved.parse(PromptList([human("q "), bot("a"), human("not sent")])) == "q B:"
        assert ApiMetaTemplate({"begin": "go"}).parse(prompt) == ["go", {"role": "HUMAN", "prompt": "U:q\n"}]

    def test_without_a_template_an_item_is_its_begin_its_prompt_and_its_end(self) -> None:
        prompt = PromptList([human("q", begin="<<", end=">>"), bot("a", end="\n"), "bye"])
        assert MetaTemplate().parse(prompt) == "<<q>>\na\nbye"
        assert ApiMetaTemplate().parse(prompt) == "<<q>>\na\nbye"
        assert MetaTemplate().parse(PromptList([human("q", end="\n"), bot("")])) == "q\n"

    def test_markers_can_be_lists_of_texts(self) -> None:
        meta = {"begin": ["<s>", "go\n"], "round": [{"role": "HUMAN", "begin": ["<", "u>"]}], "end": ["</s>"]}
        assert MetaTemplate(meta).parse(PromptList([human("q")]), "ppl") == "<s>go\n<u>q</s>"
        assert ApiMetaTemplate(meta | {"end": None}).parse(PromptList([human("q")])) == [
            "<s>go\n",
            {"role": "HUMAN", "prompt": "<u>q"},
        ]


class TestRounds:
    def test_a_repeated_role_begins_a_new_round(self) -> None:
        prompt = PromptList([human("1"), bot("2"), human("3"), bot("4")])
        assert MetaTemplate(PLAIN).parse(prompt) == "H: 1<eoh>\nB: 2<eob>\nH: 3<eoh>\nB: "

    def test_only_the_last_round_of_the_last_round_section_waits_for_the_model(self) -> None:
        marks = {"section": "round", "pos": "begin"}, {"section": "round", "pos": "end"}
        first, second = [human("1"), bot("2")], [human("3"), bot("4")]
        prompt = PromptList([marks[0], *first, marks[1], marks[0], *second, marks[1]])
        assert MetaTemplate(PLAIN).parse(prompt) == "H: 1<eoh>\nB: 2<eob>\nH: 3<eoh>\nB: "
        assert ApiMetaTemplate(API).parse(prompt) == [
            {"role": "user", "prompt": "1"},
            {"role": "assistant", "prompt": "2"},
            {"role": "user", "prompt": "3"},
        ]

    def test_a_reserved_role_can_be_in_a_round(self) -> None:
        system = {"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": "be brief"}
        prompt = PromptList([system, human("1"), bot("2"), system, human("3"), {"role": "SYSTEM", "prompt": "now"}])
        assert MetaTemplate(PLAIN).parse(prompt) == (
            "S: be brief\nH: 1<eoh>\nB: 2<eob>\nS: be brief\nH: 3<eoh>\nS: now\nB: "
        )
        messages = ApiMetaTemplate(API).parse(prompt)
        assert [message["role"] for message in messages if isinstance(message, dict)] == [
            *("system", "user", "assistant", "system", "user", "system")
        ]

    def test_a_fallback_role_can_be_in_a_round(self) -> None:
        prompt = PromptList([{"role": "NARRATOR", "fallback_role": "HUMAN", "prompt": "once"}, bot("")])
        assert MetaTemplate(PLAIN).parse(prompt) == "H: once<eoh>\nB: "

    def test_the_dataset_can_choose_the_role_that_replies(self) -> None:
        prompt = PromptList([human("1"), bot("2", generate=False)])
        assert MetaTemplate(PLAIN).parse(prompt) == "H: 1<eoh>\nB: 2<eob>\n"
        asked = PromptList([human("1", generate=True), bot("2")])
        assert MetaTemplate(PLAIN).parse(asked) == "H: "

    def test_text_of_the_template_is_in_each_round(self) -> None:
        meta = {"round": ["### ", {"role": "HUMAN", "end": "\n"}, "--- ", {"role": "BOT", "generate": True}]}
        prompt = PromptList([human("1"), bot("2\n"), human("3")])
        assert MetaTemplate(meta).parse(prompt) == "### 1\n--- 2\n### 3\n--- "

    def test_text_in_a_round_of_the_dataset_precedes_the_round(self) -> None:
        prompt = PromptList(
            [{"section": "round", "pos": "begin"}, human("1"), " mid ", bot("2"), {"section": "round", "pos": "end"}]
        )
        assert MetaTemplate(PLAIN).parse(prompt, "ppl") == " mid H: 1<eoh>\nB: 2<eob>\n"

    def test_an_item_without_a_prompt_has_the_default_of_its_role(self) -> None:
        meta = {"round": [{"role": "HUMAN", "prompt": "hello?"}, {"role": "BOT", "begin": ">", "generate": True}]}
        assert MetaTemplate(meta).parse(PromptList([{"role": "HUMAN"}])) == "hello?>"
        assert MetaTemplate(meta).parse(PromptList([human(None)])) == "hello?>"  # type: ignore[arg-type]

    def test_each_prompt_of_a_list_is_parsed_and_text_does_not_change(self) -> None:
        prompts = ("as it is", PromptList([human("1")]))
        assert MetaTemplate(PLAIN).parse(prompts) == ["as it is", "H: 1<eoh>\nB: "]
        assert ApiMetaTemplate(API).parse(prompts) == ["as it is", [{"role": "user", "prompt": "1"}]]

    def test_the_section_end_has_an_alternative_marker(self) -> None:
        end = {"section": "end", "pos": "end"}
        assert MetaTemplate(PLAIN).parse(PromptList([end, "bye", end]), "ppl") == "bye"

    def test_parsing_does_not_change_the_arguments(self) -> None:
        meta, prompt = deepcopy(MOSS), quiz()
        before = deepcopy(prompt)
        template = MetaTemplate(meta)
        assert template.parse(prompt) == template.parse(prompt)
        assert (meta, prompt) == (MOSS, before)
        meta["round"].clear()
        assert template.parse(prompt) == MetaTemplate(MOSS).parse(prompt)


class TestApis:
    def test_messages_of_one_role_in_a_row_are_one(self) -> None:
        meta = {"round": [{"role": "HUMAN", "api_role": "user"}, {"role": "THOUGHTS", "api_role": "user"}]}
        prompt = PromptList([human("1"), {"role": "THOUGHTS", "prompt": "2"}])
        assert ApiMetaTemplate(meta).parse(prompt) == [{"role": "user", "prompt": "1\n2"}]

    def test_a_role_without_an_api_role_keeps_its_name_and_its_markers(self) -> None:
        meta = {"round": [{"role": "HUMAN", "begin": "[", "end": "]"}, {"role": "BOT", "generate": True}]}
        assert ApiMetaTemplate(meta).parse(PromptList([human("1"), bot("2")])) == [{"role": "HUMAN", "prompt": "[1]"}]

    def test_a_message_or_text_can_begin_the_conversation(self) -> None:
        first = {"role": "SYSTEM", "prompt": "welcome"}
        assert ApiMetaTemplate({**API, "begin": first}).parse(PromptList([human("1")])) == [
            first,
            {"role": "user", "prompt": "1"},
        ]
        assert warned(lambda: ApiMetaTemplate({**API, "end": "over"})) == ["end"]

    def test_text_without_a_role_belongs_to_the_user(self) -> None:
        prompt = quiz(begin=["Two examples.\n", "  \n"])
        messages = ApiMetaTemplate(API).parse(prompt)
        assert messages == [
            {"role": "user", "prompt": "Two examples.\n\nWhich lake is deep?\nA. Como\nB. Aral\nAnswer: "}
        ]

    def test_text_without_a_role_can_be_omitted_with_a_warning(self) -> None:
        template = ApiMetaTemplate(API, keep_text=False)
        assert warned(lambda: template.parse(quiz(begin=["Two examples"]))) == ["Two examples"]
        with pytest.warns(InContextWarning):
            messages = template.parse(quiz(begin=["Two examples"]))
        assert messages == [{"role": "user", "prompt": "Which lake is deep?\nA. Como\nB. Aral\nAnswer: "}]

    def test_a_conversation_with_content_is_sent_unchanged(self) -> None:
        messages = [{"role": "user", "content": "hi"}]
        sent = ApiMetaTemplate(API).parse(messages)
        assert sent == messages
        assert sent is not messages

    @pytest.mark.parametrize(
        ("ahead", "wanted"),
        [
            ([("system", "S")], [("system", "S"), ("user", "1"), ("assistant", "2"), ("user", "3")]),
            ([("user", "U ")], [("user", "U 1"), ("assistant", "2"), ("user", "3")]),
            (
                [("assistant", "A "), ("system", "S")],
                [("user", "1"), ("assistant", "A 2"), ("system", "S"), ("user", "3")],
            ),
            ([("user", "a"), ("user", "b")], [("user", "a1"), ("assistant", "2"), ("user", "b3")]),
        ],
    )
    def test_the_messages_of_a_template_precede_messages_of_the_same_role(
        self, ahead: list[tuple[str, str]], wanted: list[tuple[str, str]]
    ) -> None:
        def wire(pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
            return [{"role": role, "content": content} for role, content in pairs]

        template = ApiMetaTemplate(wire(ahead))
        assert template.parse(wire([("user", "1"), ("assistant", "2"), ("user", "3")])) == wire(wanted)
        prompt = PromptList([human("1"), bot("2"), human("3")])
        assert template.parse(prompt) == wire(wanted)

    def test_the_messages_of_a_template_precede_content_parts(self) -> None:
        template = ApiMetaTemplate([{"role": "user", "content": "Look: "}])
        image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
        assert template.parse([{"role": "user", "content": [image]}]) == [
            {"role": "user", "content": [{"type": "text", "text": "Look: "}, image]}
        ]

    def test_the_messages_of_a_template_precede_a_message_without_content(self) -> None:
        template = ApiMetaTemplate([{"role": "assistant", "content": "Look"}])
        call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
        assert template.parse([call]) == [{**call, "content": "Look"}]


class TestBadInput:
    def test_the_error_names_each_problem_of_a_template(self) -> None:
        config = {
            "beginn": "x",
            "round": [{"rol": "HUMAN"}, 5, {"role": "A", "begin": 3, "generate": "yes"}, {"role": "B"}, {"role": "B"}],
            "reserved_roles": "SYSTEM",
            "eos_token_id": True,
            "end": {"role": "B"},
        }
        assert places(lambda: MetaTemplate(config)) == (
            "beginn",
            "round[0].rol",
            "round[0].role",
            "round[1]",
            "round[2].generate",
            "round[2].begin",
            "reserved_roles",
            "round[4].role",
            "eos_token_id",
            "end",
        )

    @pytest.mark.parametrize("config", ["x", 5, [{"role": "system", "content": "S"}]])
    def test_a_completion_model_takes_a_dict(self, config: Any) -> None:
        error = refused(lambda: MetaTemplate(config))
        assert (error.name, error.value) == ("config", type(config).__name__)

    def test_an_api_takes_a_dict_or_messages(self) -> None:
        error = refused(lambda: ApiMetaTemplate("x"))  # type: ignore[arg-type]
        assert (error.name, error.value) == ("config", "str")
        messages: list[Any] = [{"role": "x", "content": ""}, 5, {"role": "user", "content": None}]
        assert places(lambda: ApiMetaTemplate(messages)) == ("[0].role", "[1]", "[2].content")
        assert places(lambda: ApiMetaTemplate({**API, "begin": {"prompt": "x"}})) == ("begin.role",)

    @pytest.mark.parametrize("template", [MetaTemplate(PLAIN), ApiMetaTemplate(API)])
    def test_the_error_names_each_problem_of_a_prompt(self, template: MetaTemplate | ApiMetaTemplate) -> None:
        prompt = PromptList(
            [
                {"section": "foo", "pos": "begin"},
                {"section": "round", "pos": "middle"},
                {"section": "ice", "pos": "end"},
                {"section": "round", "pos": "begin"},
                {"section": "begin", "pos": "end"},
                {"prompt": "who?"},
                {"role": "HUMANN", "prompt": ""},
                {"role": "X", "fallback_role": "X", "prompt": ""},
                {"role": "X", "fallback_role": "Y", "prompt": ""},
                {"role": "HUMAN", "prompt": 5},
                {"role": "HUMAN", "prompt_mm": {"text": 1}},
                {"role": "BOT", "begin": 5},
                5,  # type: ignore[list-item]
                {"section": "round", "pos": "end"},
            ]
        )
        assert sorted(places(lambda: template.parse(prompt)), key=lambda place: int(place[1:].partition("]")[0])) == [
            "[0].section",
            "[1].pos",
            "[2]",
            "[4]",
            "[5].role",
            "[6].role",
            "[7].role",
            "[8].fallback_role",
            "[9].prompt",
            "[10].prompt_mm",
            "[11].begin",
            "[12]",
        ]

    def test_overrides_of_a_role_in_an_item_are_checked(self) -> None:
        prompt = PromptList([human("1", api_role=5), bot("", generate="yes")])
        assert places(lambda: ApiMetaTemplate(API).parse(prompt)) == ("[0].api_role", "[1].generate")
        renamed = PromptList([human("1", api_role="developer"), bot("")])
        assert ApiMetaTemplate(API).parse(renamed) == [{"role": "developer", "prompt": "1"}]

    @pytest.mark.parametrize("template", [MetaTemplate(), ApiMetaTemplate()])
    def test_items_without_a_template_must_be_text(self, template: MetaTemplate | ApiMetaTemplate) -> None:
        prompt = PromptList([human(5), 7, human("x", end=[1], prompt_mm=5)])  # type: ignore[arg-type, list-item]
        assert places(lambda: template.parse(prompt)) == ("[0].prompt", "[1]", "[2].end", "[2].prompt_mm")

    @pytest.mark.parametrize("template", [MetaTemplate(PLAIN), ApiMetaTemplate(API)])
    @pytest.mark.parametrize("prompt", [5, None, {"role": "HUMAN", "prompt": "x"}, [5]])
    def test_a_prompt_of_another_type_is_refused(self, template: MetaTemplate | ApiMetaTemplate, prompt: Any) -> None:
        inner = prompt[0] if isinstance(prompt, list) else prompt
        error = refused(lambda: template.parse(prompt))
        assert (error.name, error.value) == ("prompt", type(inner).__name__)

    @pytest.mark.parametrize("template", [MetaTemplate(PLAIN), ApiMetaTemplate(API), MetaTemplate()])
    def test_a_mode_is_gen_or_ppl(self, template: MetaTemplate | ApiMetaTemplate) -> None:
        assert refused(lambda: template.parse("x", "genn")).name == "mode"  # type: ignore[arg-type]

    def test_an_api_is_not_sent_an_empty_conversation(self) -> None:
        assert refused(lambda: ApiMetaTemplate(API).parse(PromptList([" "]))).name == "prompt"

    def test_an_unclosed_section_is_omitted_with_a_warning(self) -> None:
        prompt = PromptList([{"section": "round", "pos": "begin"}, human("lost")])
        template = MetaTemplate({**PLAIN, "end": "</s>"})
        assert warned(lambda: template.parse(prompt)) == ["round"]
        with pytest.warns(InContextWarning):
            assert template.parse(prompt) == "</s>"
