"""Rows of a dataset as prompts: columns in braces, prompt lists, and templates."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.prompts.evaluation import PromptList, PromptTemplate, RawPromptTemplate, safe_format
from tests.prompts.evaluation.refusals import is_marker, places, refused
from tests.prompts.laws import law

ROW = {"question": "1+1=?", "answer": "2", "topic": "sums"}
DIALOGUE: dict[str, Any] = {
    "begin": [{"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": "About {topic}."}, "</E>"],
    "round": [{"role": "HUMAN", "prompt": "{question}"}, {"role": "BOT", "prompt": "{answer}"}],
}
SHOT = {"round": DIALOGUE["round"]}


class Stubborn:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def items(prompt: object) -> list[Any]:
    """Return the items of a prompt list, without markers."""
    assert type(prompt) is PromptList
    return [item for item in prompt if not is_marker(item)]


# Columns in braces


def test_a_column_replaces_its_name_and_other_text_in_braces_stays() -> None:
    text = "{q} {{q}} {Q} { q } {q!r} {q:>5} {0} {} %s %d {per cent}"
    assert safe_format(text, {"q": "A", "per cent": "100%"}) == "A {A} {Q} { q } {q!r} {q:>5} {0} {} %s %d 100%"


def test_values_are_not_expanded_again_in_any_order_of_columns() -> None:
    row = {"a": "{b}", "b": "{a}", "c": "%s {c}"}
    for names in ("abc", "cba", "bca"):
        assert safe_format("{a}|{b}|{c}", {name: row[name] for name in names}) == "{b}|{a}|%s {c}"


def test_values_are_converted_by_str() -> None:
    row = {"n": None, "t": True, "f": 3.50, "l": [1, {"k": "v"}], "p": (1, 2), "b": b"x"}
    assert safe_format("{n} {t} {f} {l} {p} {b}", row) == "None True 3.5 [1, {'k': 'v'}] (1, 2) b'x'"
    assert safe_format("{p}", {"p": (1, 2)}) == "(1, 2)"


@pytest.mark.parametrize(
    "name", ["self", "text", "row", "kwargs", "input_str", "a.b", "a[0]", "a}b", "{", "ä ö", "(", ""]
)
def test_any_text_can_name_a_column(name: str) -> None:
    assert safe_format(f"<{{{name}}}>", {name: "v"}) == "<v>"
    assert PromptTemplate(f"<{{{name}}}>").item({name: "v"}) == "<v>"


def test_columns_can_be_passed_by_name() -> None:
    assert safe_format("{a}{b}", {"a": 1, "b": 2}, b=3) == "13"
    assert safe_format("{a}") == "{a}"


def test_the_longer_of_two_spellings_wins() -> None:
    assert safe_format("{a}{ab}", {"a": 1, "ab": 2, "a}{ab": 3}) == "3"


def test_a_name_or_a_value_without_a_text_is_refused_by_name() -> None:
    assert places(lambda: safe_format("x", {0: "v", None: "w"})) == ("0", "None")  # type: ignore[dict-item]
    row = {"a": Stubborn(), "b": "fine", "c": Stubborn()}
    assert places(lambda: safe_format("{a}{b}{c}", row)) == ("a", "c")
    assert safe_format("{b}", row) == "fine", "a column that is not used need not have text"


@law
@given(
    st.lists(st.sampled_from(["{a}", "{b}", "{", "}", "%", "%s", "{c}", "x", "{{a}}", "\n"])),
    st.text("{}ab%s"),
    st.text("{}ab%s"),
)
def test_a_text_is_filled_as_if_by_one_substitution(pieces: list[str], a: str, b: str) -> None:
    text, row = "".join(pieces), {"a": a, "b": b}
    assert safe_format(text, row) == re.sub(r"\{(a|b)\}", lambda match: row[match[1]], text)


# Prompt lists


def test_a_prompt_list_fills_only_texts_and_prompts() -> None:
    items = PromptList(["{x}", {"role": "{x}", "prompt": "{x}", "begin": "{x}"}, {"role": "BOT"}])
    filled = items.format({"x": "1"}, y="2")
    assert type(filled) is PromptList
    assert filled == ["1", {"role": "{x}", "prompt": "1", "begin": "{x}"}, {"role": "BOT"}]
    assert items[0] == "{x}" and items[1] is not filled[1], "the list itself stays as it was"


def test_a_list_replaces_a_token_and_leaves_no_empty_text() -> None:
    shots = PromptList([{"role": "HUMAN", "prompt": "i"}])
    assert PromptList(["aXbX", "X", "", "c"]).replace("X", shots) == ["a", *shots, "b", *shots, *shots, "c"]
    assert PromptList(["aXb", {"role": "H", "prompt": "X!"}]).replace("X", "-") == [
        "a-b",
        {"role": "H", "prompt": "-!"},
    ]
    made = PromptList(["X"]).replace("X", shots)
    made[0]["prompt"] = "changed"  # type: ignore[index]
    assert shots == [{"role": "HUMAN", "prompt": "i"}], "the inserted value is a copy"


def test_lists_and_texts_are_joined_and_empty_values_add_no_item() -> None:
    one, other = PromptList(["a"]), [{"role": "BOT", "prompt": "b"}]
    assert one + other == ["a", *other] and type(one + other) is PromptList
    assert other + one == [*other, "a"] and type(other + one) is PromptList
    assert "t" + one == ["t", "a"] and one + "t" == ["a", "t"]
    assert one + "" == one + None == None + one == "" + one == ["a"]
    one += "xyz"
    one += other
    one += None
    assert one == ["a", "xyz", *other] and type(one) is PromptList
    assert PromptList(["a"]) * 2 == ["a", "a"]
    assert str(PromptList(["a", {"role": "BOT", "prompt": "b"}, {"section": "round", "pos": "end"}])) == "ab"


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (lambda: PromptList(["x"]) + 5, (None, None, "int")),
        (lambda: {"k": 1} + PromptList(["x"]), (None, None, "dict")),
        (lambda: PromptList(["x"]).replace("", "y"), (None, "src", None)),
        (lambda: PromptList(["x"]).replace("x", ["y"]), (None, "dst", None)),
        (lambda: PromptList([{"role": "H", "prompt": "x"}]).replace("x", PromptList(["y"])), ("[0]", "x", None)),
        (lambda: PromptList(["x", 5]).format({}), ("[1]", None, None)),
        (lambda: PromptList([None]).replace("x", PromptList()), ("[0]", None, None)),
        (lambda: str(PromptList([{"role": "H", "prompt": 5}])), ("[0].prompt", None, "int")),
    ],
)
def test_unsupported_operations_of_a_prompt_list_are_refused(wrong: Any, place: tuple[str | None, ...]) -> None:
    error = refused(wrong)
    assert (error.path, error.name, error.value) == place


# Templates


def test_a_text_prompt_hides_the_answer_and_an_example_shows_it() -> None:
    template = PromptTemplate("</E>Q: {question}\nA: {answer}", ice_token="</E>")
    assert template.item(ROW, ice="shots\n", hide="answer") == "shots\nQ: 1+1=?\nA: "
    assert template.item(ROW, hide="answer", instead="?") == "Q: 1+1=?\nA: ?"
    assert template.ice_item(ROW) == template.label_item(ROW) == "Q: 1+1=?\nA: 2"
    assert template.item({"question": "x"}, hide="answer") == "Q: x\nA: ", "an answer that is not known is hidden too"
    assert template.item({"question": "x"}) == "Q: x\nA: {answer}"


def test_a_dialogue_becomes_sections_and_an_example_only_its_rounds() -> None:
    template = PromptTemplate(DIALOGUE, ice_token="</E>")
    example = PromptTemplate(SHOT).ice_item({"question": "2+2=?", "answer": "4"})
    assert example[0] == {"section": "ice", "pos": "begin"} and example[-1] == {"section": "ice", "pos": "end"}
    prompt = template.item(ROW, ice=example, hide="answer")
    assert [item.get("section") for item in prompt if is_marker(item)] == [
        "begin",
        "ice",
        "ice",
        "begin",
        "round",
        "round",
    ]
    assert items(prompt) == [
        {"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": "About sums."},
        {"role": "HUMAN", "prompt": "2+2=?"},
        {"role": "BOT", "prompt": "4"},
        {"role": "HUMAN", "prompt": "1+1=?"},
        {"role": "BOT", "prompt": ""},
    ]
    assert items(template.ice_item(ROW)) == [{"role": "HUMAN", "prompt": "1+1=?"}, {"role": "BOT", "prompt": "2"}]


def test_a_section_can_be_one_text_or_one_role_item() -> None:
    turn = {"role": "HUMAN", "prompt": "{question}"}
    assert items(PromptTemplate({"begin": turn, "round": turn, "end": "{topic}"}).item(ROW)) == [
        {"role": "HUMAN", "prompt": "1+1=?"},
        {"role": "HUMAN", "prompt": "1+1=?"},
        "sums",
    ]


def test_an_empty_text_stays_until_examples_replace_it() -> None:
    template = PromptTemplate({"begin": ["</E>", ""], "round": []}, ice_token="</E>")
    assert items(template.item({})) == ["", ""]
    assert items(template.item({}, ice=PromptList([{"role": "HUMAN", "prompt": "x"}]))) == [
        {"role": "HUMAN", "prompt": "x"}
    ]
    assert items(PromptTemplate({"begin": "", "round": []}).item({})) == [""]
    assert PromptTemplate({"round": []}, ice_token="</E>").places() == PromptTemplate({"round": []}).places() == ""


def test_examples_and_the_row_do_not_expand_each_other() -> None:
    shot = PromptTemplate(SHOT).ice_item({"question": "{question}</E>", "answer": "{answer}"})
    prompt = PromptTemplate(DIALOGUE, ice_token="</E>").item({**ROW, "question": "</E>{topic}"}, ice=shot)
    assert [item["prompt"] for item in items(prompt)] == [
        "About sums.",
        "{question}</E>",
        "{answer}",
        "</E>{topic}",
        "2",
    ]
    text = PromptTemplate("</E>{question}</E>", ice_token="</E>")
    assert text.item({"question": "</E>"}, ice="{question}") == "{question}</E>{question}"


def test_text_around_the_place_of_examples_stays_around_them() -> None:
    template = PromptTemplate({"begin": ["{topic}: </E> end"], "round": []}, ice_token="</E>")
    shots = PromptList([{"role": "HUMAN", "prompt": "x"}])
    assert items(template.item(ROW, ice=shots)) == ["sums: ", {"role": "HUMAN", "prompt": "x"}, " end"]
    assert items(template.item(ROW, ice="x")) == ["sums: x end"]
    assert items(template.item(ROW)) == ["sums:  end"]


def test_the_caller_can_change_a_returned_prompt_without_an_effect() -> None:
    config = deepcopy(DIALOGUE)
    template = PromptTemplate(config, ice_token="</E>")
    config["round"].clear()
    shots = PromptTemplate(SHOT).ice_item(ROW)
    first = template.item(ROW, ice=shots)
    again = deepcopy(first)
    for item in first:
        if isinstance(item, dict):
            item.clear()
    assert template.item(ROW, ice=shots) == again


def test_labels_choose_among_texts_dialogues_and_lists_of_turns() -> None:
    template = PromptTemplate({0: "{question} no", "yes": SHOT, "list": [{"role": "BOT", "prompt": "{answer}"}]})
    assert template.labels == (0, "yes", "list")
    assert template.item(ROW) == "1+1=? no", "asked without a label, the first answers"
    assert items(template.label_item(ROW, "yes"))[1] == {"role": "BOT", "prompt": "2"}
    assert items(template.ice_item(ROW, "list")) == [{"role": "BOT", "prompt": "2"}]
    for label in ("maybe", ["yes"], "0"):
        assert refused(lambda label=label: template.label_item(ROW, label)).name == str(label)  # type: ignore[misc]
    assert PromptTemplate("x").labels == PromptTemplate(SHOT).labels == ()


def test_an_unknown_key_makes_a_dialogue_a_dict_of_labels() -> None:
    template = PromptTemplate({"begin": "x", "round": [{"role": "HUMAN", "prompt": "r"}], "yes": "y"})
    assert template.labels == ("begin", "round", "yes") and template.item({}) == "x"


def test_a_separator_is_removed_from_the_template_but_not_from_values() -> None:
    template = PromptTemplate("{question}<SEP>{answer}", sep_token="<SEP>")
    row = {"question": "what is <SEP>?", "answer": "a mark"}
    assert template.item(row, hide="answer") == "what is <SEP>?"
    assert template.label_item(row) == "what is <SEP>?a mark"
    assert template.label_item(row, keep_separator=True) == template.ice_item(row) == "what is <SEP>?<SEP>a mark"
    assert template.ice_item(row, keep_separator=False) == "what is <SEP>?a mark"


def test_the_token_of_a_column_is_replaced_as_well_as_its_name() -> None:
    template = PromptTemplate(
        {"round": [{"role": "HUMAN", "prompt": "</q> {question} </missing> %"}, {"role": "BOT", "prompt": "</a>"}]},
        column_token_map={"question": "</q>", "answer": "</a>", "gone": "</missing>"},
    )
    row = {"question": "</a>", "answer": "2"}
    assert [item["prompt"] for item in items(template.item(row, hide="answer"))] == ["</a> </a> </missing> %", ""]


def test_rows_with_different_columns_are_independent() -> None:
    template = PromptTemplate("{a}{b}")
    assert [template.item({"a": 1}), template.item({"b": 2}), template.item({"a": 1, "b": 2})] == ["1{b}", "{a}2", "12"]
    for number in range(100):
        assert template.item({"a": number, f"c{number}": 0}) == f"{number}{{b}}"


def test_the_error_names_each_problem_of_a_template() -> None:
    found = places(
        lambda: PromptTemplate(
            {"a": "no token", "b": 5, "c": {"round": [{"prompt": 1}, 7], "start": []}, "d": {"begin": "x"}},
            ice_token="</E>",
            sep_token=3,  # type: ignore[arg-type]
            column_token_map={"q": ""},
        )
    )
    assert found == (
        "sep_token",
        "column_token_map['q']",
        "template['a']",
        "template['b']",
        "template['c'].start",
        "template['c'].round[0].role",
        "template['c'].round[0].prompt",
        "template['c'].round[1]",
        "template['d'].round",
    )


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"template": ["x"]}, "template"),
        ({"template": {}}, "round"),
        ({"template": "no place", "ice_token": "</E>"}, "template"),
        ({"template": "x", "ice_token": 5}, "ice_token"),
        ({"template": "x", "column_token_map": ["q"]}, "column_token_map"),
    ],
)
def test_an_unusable_template_is_refused(arguments: Any, place: str) -> None:
    assert places(lambda: PromptTemplate(**arguments)) == (place,)


def test_examples_with_roles_cannot_be_inserted_into_text() -> None:
    shots = PromptTemplate(SHOT).ice_item(ROW)
    error = refused(lambda: PromptTemplate("</E>{question}", ice_token="</E>").item(ROW, ice=shots))
    assert (error.path, error.name) == (None, "</E>")
    inside = PromptTemplate({"round": [{"role": "HUMAN", "prompt": "</E>{question}"}]}, ice_token="</E>")
    error = refused(lambda: inside.item(ROW, ice=shots))
    assert (error.path, error.name) == ("HUMAN", "</E>")
    assert items(inside.item(ROW, ice="text\n")) == [{"role": "HUMAN", "prompt": "text\n1+1=?"}]


# Messages


def test_messages_are_filled_expanded_and_take_examples() -> None:
    template = RawPromptTemplate(
        [
            {"role": "system", "content": "About {topic}."},
            "</E>",
            {"expand_column": "past"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "{question}"}, {"type": "image_url", "image_url": "u"}],
            },
            {"role": "assistant", "content": "{answer}"},
        ]
    )
    row = {**ROW, "past": [{"role": "user", "content": "{question}"}]}
    shots = [{"role": "user", "content": "shot {topic}"}]
    assert template.item(row, ice=shots, hide="answer") == [
        {"role": "system", "content": "About sums."},
        {"role": "user", "content": "shot {topic}"},
        {"role": "user", "content": "{question}"},
        {"role": "user", "content": [{"type": "text", "text": "1+1=?"}, {"type": "image_url", "image_url": "u"}]},
        {"role": "assistant", "content": ""},
    ]
    assert template.label_item(row)[-1] == template.ice_item(row)[-1] == {"role": "assistant", "content": "2"}
    assert (template.places(), RawPromptTemplate([]).places()) == ("items", "")


def test_messages_can_stay_unexpanded() -> None:
    messages = [{"role": "user", "content": "{question}"}]
    made = RawPromptTemplate(messages, format_variables=False).item(ROW)
    assert made == messages and made[0] is not messages[0]


def test_the_error_names_each_problem_of_messages() -> None:
    wrong: list[Any] = [5, "stray", {"content": "x"}, {"role": "tool"}, {"expand_column": 1}]
    assert places(lambda: RawPromptTemplate(wrong)) == (
        "messages[0]",
        "messages[1]",
        "messages[2].role",
        "messages[3].content",
        "messages[3].role",
        "messages[4].expand_column",
    )
    assert refused(lambda: RawPromptTemplate("x")).name == "messages"  # type: ignore[arg-type]


def test_messages_that_cannot_be_rendered_are_refused() -> None:
    template = RawPromptTemplate([{"expand_column": "past"}, "</E>"])
    missing, invalid = refused(lambda: template.item(ROW)), refused(lambda: template.item({"past": ["x"]}))
    assert (missing.name, missing.value, invalid.name, invalid.value) == ("past", None, "past", "list")
    assert refused(lambda: template.item({"past": []}, ice="text")).name == "ice"
