"""Used prompts that are copied, updated or pickled render as new prompts."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.prompts import (
    BasePrompt,
    Example,
    Layers,
    MemoPrompt,
    PromptContext,
    PromptError,
    Template,
    TemplateError,
    TextPrompt,
    UserInputPrompt,
    WrapPrompt,
    compose,
)
from agentkit.prompts.example_selectors import StaticSelector
from agentkit.testing import strategies as some
from tests.prompts.laws import law

pytestmark = pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning")

ASK = PromptContext(user_input="hi", session_key="key", documents=["d"])


def output_of(given: BasePrompt | Layers, ctx: PromptContext) -> object:
    """Return the output of a prompt or of layers, or their error."""
    layers = given if isinstance(given, Layers) else Layers(given, conversation=False)
    try:
        composition = compose(layers, ctx)
        return composition.to_openai(), composition.text, composition.spans, composition.tokens
    except PromptError as error:
        return str(error)


def test_an_update_of_a_used_prompt_adds_a_fence() -> None:
    prompt = UserInputPrompt()
    assert compose(Layers(input=prompt), ASK).user.text == "hi"
    fenced = prompt.model_copy(update={"fence": True})
    assert compose(Layers(input=fenced), ASK).user.text.startswith("<untrusted-")


def test_an_update_of_a_used_prompt_replaces_its_template_and_prompts() -> None:
    prompt = UserInputPrompt()
    wrap = WrapPrompt([prompt], "<{{ wrapped_str }}>")
    assert compose(Layers(input=wrap), ASK).user.text == "<hi>"
    loud = prompt.model_copy(update={"template": Template("{{ user_input.text | upper }}")})
    assert compose(Layers(input=loud), ASK).user.text == "HI"
    assert compose(Layers(input=wrap.model_copy(update={"template": "[{{ wrapped_str }}]"})), ASK).user.text == "[hi]"
    other = wrap.model_copy(update={"wrapped_prompts": (TextPrompt("a"), TextPrompt("b"))})
    assert compose(Layers(input=other), ASK).user.text == "<a\nb>"


@pytest.mark.parametrize(
    ("update", "at_fault"),
    [
        ({"template": 5}, "template"),
        ({"template": "{{ nothing }}"}, "nothing"),
        ({"size": "large"}, "size"),
        ({"fense": True}, "fense"),
        ({"name": 3}, "name"),
    ],
)
def test_an_update_to_an_invalid_prompt_is_refused_as_at_construction(update: dict[str, Any], at_fault: str) -> None:
    prompt = MemoPrompt()
    with pytest.raises(PromptError) as caught:
        prompt.model_copy(update=update)
    error = caught.value
    if isinstance(error, TemplateError):
        assert error.variable == at_fault
    else:
        assert error.name == at_fault
    assert prompt.format_2_str(ASK) == "[document#54e1cf]\nd"


TEXTS = st.sampled_from(
    ["plain", "{{ user_input }}", "{{ extra.note }}: {{ user_input.text | upper }}", "{{ locale }}"]
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "template": TEXTS.map(Template) | TEXTS.map(lambda text: Template({"en": "English", "zh": text})),
    "name": st.sampled_from([None, "a name"]),
    "volatility": st.sampled_from([None, "static", "turn"]),
    "fence": st.booleans(),
    "keep_empty": st.booleans(),
    "size": some.sizes(maximum=True),
    "wrapped_prompts": st.lists(some.prompts(max_leaves=2), max_size=3).map(tuple),
    "examples": st.lists(st.builds(Example, some.hostile_texts(1), some.hostile_texts(1)), max_size=2).map(tuple),
    "selector": st.builds(StaticSelector, st.integers(0, 2)),
}
PLACED = st.lists(some.prompts(max_leaves=2), max_size=2).map(tuple)
LAYER_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("system", "before_input", "input", "after_input", "after_intermediate"), PLACED),
    "conversation": st.booleans(),
    "empty_messages": st.booleans(),
    "history": some.sizes(items=True).filter(lambda size: size.cut in ("none", "drop", "items")),
    "traffic": some.sizes(items=True).filter(lambda size: size.cut in ("none", "drop", "items")),
    "history_block": st.sampled_from([0, 16]),
}
COPIES: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    lambda given: pickle.loads(pickle.dumps(given)),
    lambda given: given.model_copy(),
    lambda given: given.model_copy(deep=True),
]


def same_as_new(given: Any, fields: dict[str, st.SearchStrategy[Any]], ctx: PromptContext, data: st.DataObject) -> None:
    before = output_of(given, ctx)
    for field in type(given).model_fields:
        other = data.draw(fields[field], label=field)
        try:
            new = type(given)(**{**{name: getattr(given, name) for name in type(given).model_fields}, field: other})
        except PromptError as error:
            with pytest.raises(type(error)):
                given.model_copy(update={field: other})
            continue
        updated = given.model_copy(update={field: other})
        assert output_of(updated, ctx) == output_of(new, ctx), field
        assert output_of(copy.copy(updated), ctx) == output_of(new, ctx), field
    for copied in (make(given) for make in COPIES):
        assert output_of(copied, ctx) == before
    assert output_of(given, ctx) == before, "updated copies leave it as it is"


@law
@given(some.prompts(max_leaves=4), some.contexts(), st.data())
def test_each_updated_field_of_each_prompt_renders_as_in_a_new_prompt(
    prompt: BasePrompt, ctx: PromptContext, data: st.DataObject
) -> None:
    same_as_new(prompt, FIELDS, ctx, data)


@law
@given(some.layers(), some.contexts(), st.data())
def test_each_updated_field_of_layers_composes_as_in_new_layers(
    layers: Layers, ctx: PromptContext, data: st.DataObject
) -> None:
    same_as_new(layers, LAYER_FIELDS, ctx, data)
