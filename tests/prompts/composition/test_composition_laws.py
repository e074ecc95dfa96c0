"""Laws of a composition: spans tile each message, untrusted text stays at its place, no orphan is sent."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.prompts import (
    Composition,
    Conversation,
    Layers,
    Media,
    MediaError,
    Message,
    PromptContext,
    Text,
    UserInput,
    compose,
)
from agentkit.testing import strategies as some
from agentkit_prompts.context.wire.clean import clean
from tests.prompts.laws import law

pytestmark = pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning")


def without_orphans(messages: tuple[Message, ...]) -> None:
    """Fail unless the results of each call follow it directly, without other results."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id in waiting
            waiting.remove(message.tool_call_id)
            continue
        assert not waiting
        waiting = [call.id for call in message.tool_calls]
    assert not waiting


def media_of(composition: Composition) -> list[int]:
    return [sum(isinstance(part, Media) for part in message.parts) for message in composition.messages]


def tiles(composition: Composition) -> None:
    spans = composition.spans
    assert [span.message for span in spans] == sorted(span.message for span in spans)
    for index in range(len(composition.messages)):
        at = 0
        for span in (one for one in spans if one.message == index):
            assert span.start == at < span.end
            assert span.prompt
            at = span.end
        assert at == len(composition.marked_text(index))


@law
@given(some.layers(), some.contexts(orphans=True))
def test_no_orphan_is_sent(layers: Layers, ctx: PromptContext) -> None:
    without_orphans(compose(layers, ctx).messages)


@law
@given(some.layers(), some.contexts())
def test_the_messages_have_the_roles_of_the_layers_and_of_the_conversation(layers: Layers, ctx: PromptContext) -> None:
    composition = compose(layers, ctx)
    roles = [message.role for message in composition.messages]
    history = [message.role for message in ctx.conversation] if layers.conversation else []
    between = [message.role for message in ctx.intermediate]
    placed = [bool(layers.system), bool(layers.before_input or layers.input or layers.after_input)]
    system, user = (here and layers.empty_messages for here in placed)
    expected = ["system"] * bool(composition.system.text or system) + history
    expected += ["user"] * bool(composition.user.text or user)
    expected += between + ["user"] * bool(between and composition.closing.text)
    assert roles == expected
    tiles(composition)
    one_head_per_message(composition)


def one_head_per_message(composition: Composition) -> None:
    """Fail unless the plain text names the role of each message, in order."""
    told = composition.to_text()
    for message in composition.messages:
        head = f"{message.role}: "
        assert head in told
        told = told[told.index(head) + len(head) :]


@law
@given(some.layers(), some.contexts(), st.sampled_from(some.HOSTILE))
def test_longer_user_text_changes_no_role_no_tool_and_no_media(layers: Layers, ctx: PromptContext, more: str) -> None:
    given = ctx.user_input.input
    longer = given + more if isinstance(given, str) else (*given, Text(more))
    changed = ctx.evolve(
        user_input=UserInput(longer, additional_kwargs=dict(ctx.user_input.additional_kwargs)),
        conversation=Conversation(
            replace(message, content=message.content + more) if isinstance(message.content, str) else message
            for message in ctx.conversation
        ),
        documents=tuple(replace(item, text=item.text + more) for item in ctx.documents),
    )
    before, after = compose(layers, ctx), compose(layers, changed)
    assert after.tools == before.tools
    assert {kind: set(held) for kind, held in after.media.items()} == {
        kind: set(held) for kind, held in before.media.items()
    }
    if before.system.text and before.user.text and before.closing.text:
        assert [message.role for message in after.messages] == [message.role for message in before.messages]


@law
@given(some.layers(), some.contexts(with_media=False))
def test_the_openai_payload_has_the_texts_of_the_messages(layers: Layers, ctx: PromptContext) -> None:
    composition = compose(layers, ctx)
    payload = composition.to_openai()
    json.dumps(payload)
    assert [message["role"] for message in payload["messages"]] == [message.role for message in composition.messages]
    for wire, message in zip(payload["messages"], composition.messages, strict=True):
        content = wire["content"] or ""
        told = content if isinstance(content, str) else "".join(part["text"] for part in content)
        # The payload replaces only lone surrogates, because they have no encoding.
        assert told == "".join(clean(part.text if isinstance(part, Text) else part.alt) for part in message.parts)
        assert [call["id"] for call in wire.get("tool_calls", ())] == [call.id for call in message.tool_calls]


@law
@given(some.layers(), some.contexts())
def test_the_table_the_difference_and_the_breakpoints_agree(layers: Layers, ctx: PromptContext) -> None:
    composition = compose(layers, ctx)
    rows = composition.explain()
    assert sum(row.tokens for row in rows) == composition.tokens
    assert sum(row.share for row in rows) == pytest.approx(1.0 if composition.tokens else 0.0)
    assert all(row.status == "kept" for row in rows)
    json.dumps(rows.to_dicts())
    assert all(row.layer in str(rows) for row in rows)

    other = compose(layers, copy(ctx))
    difference = composition.diff(other)
    assert difference.layer is None, "a composition does not differ from itself"
    assert difference.tokens == composition.tokens
    assert (composition.prefix_hash, composition.prefix_tokens) == (other.prefix_hash, other.prefix_tokens)

    points = composition.breakpoints
    assert len(points) <= 4
    places = [(point.message, point.offset, point.tokens) for point in points]
    assert places == sorted(places)
    assert all(tokens <= composition.tokens + 8 for _, _, tokens in places)
    anthropic_marks_at_most_four(composition)


def anthropic_marks_at_most_four(composition: Composition) -> None:
    try:
        payload = composition.to_anthropic()
    except MediaError:  # A request cannot contain all kinds of media.
        return
    blocks = [block for message in payload["messages"] for block in message["content"]]
    marks = sum("cache_control" in block for block in (*payload.get("system", ()), *payload.get("tools", ()), *blocks))
    assert marks <= 4
    assert {message["role"] for message in payload["messages"]} <= {"user", "assistant"}


@law
@given(some.layers(), some.contexts(), some.contexts())
def test_a_difference_is_at_the_first_unequal_character(
    layers: Layers, ctx: PromptContext, other: PromptContext
) -> None:
    now, before = compose(layers, ctx), compose(layers, other)
    difference = now.diff(before)
    if difference.layer is None:
        assert (now.messages, now.tools) == (before.messages, before.tools)
        return
    if difference.layer == "tools":
        assert now.tools != before.tools
        return
    assert now.messages[: difference.message] == before.messages[: difference.message]
    if difference.message < min(len(now.messages), len(before.messages)):
        text, old = now.marked_text(difference.message), before.marked_text(difference.message)
        assert text[: difference.offset] == old[: difference.offset]
