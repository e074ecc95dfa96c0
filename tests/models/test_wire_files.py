"""Bodies and streams of servers, as data: `wires/*.jsonl` has one line for each quirk of a server.

A line has a `name`, the data of the server (`body`, a document; `stream`, the documents of events, in which a text is
sent unchanged; or `raw`, the bytes of the answer as Latin-1), and the expected result: `reply` or `error`. Other keys:
`status`, `headers` and `media_type` of the answer; `only` is `whole` or `streamed` if the model is not called in both
ways; `says` is text of the server that the message of the error repeats.

To add a quirk, add a line without `reply` and `error`: the test shows the result.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentkit import ModelError, Reply
from agentkit.models import Delta
from tests.models.asking import ADD, NOTHING_LEFT_OPEN, composed
from tests.models.wire_forms import COMPLETION, WIRES, Wire, as_event, model_of
from tests.servers import ChatServer, Handler, sends, streams

pytestmark = NOTHING_LEFT_OPEN
FOLDER = Path(__file__).parent / "wires"
FORMS = {wire.name: wire for wire in (*WIRES, COMPLETION)}
DETAILS = ("status", "retry_after", "is_final", "text")
"""Attributes of errors that a line may expect."""
_OUR_ID = re.compile(r"^(call_[0-9a-f]{24}|[0-9A-Za-z]{9})$")


def cases(wire: Wire) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{wire.name}.jsonl").read_bytes().splitlines()]


def answer(case: dict[str, Any], wire: Wire) -> Handler:
    if "stream" in case:
        pieces = [piece.encode() if isinstance(piece, str) else as_event(piece) for piece in case["stream"]]
        return streams(*pieces, done=wire.done)
    content = case["raw"].encode("latin-1") if "raw" in case else json.dumps(case["body"]).encode()
    return sends(
        content,
        case.get("status", 200),
        headers=case.get("headers"),
        media_type=case.get("media_type", "application/json"),
    )


def as_data(reply: Reply, host: str) -> dict[str, Any]:
    """Return the fields of a reply without empty and default values. A generated id is empty."""
    message, usage = reply.message, reply.usage
    data = {
        "text": message.text,
        "thinking": message.reasoning,
        "calls": [[_OUR_ID.sub("", call.id), call.name, call.arguments] for call in message.tool_calls],
        "usage": [usage.input_tokens, usage.output_tokens, usage.cached_tokens],
        "finish_reason": reply.finish_reason,
        "model": reply.model,
        "opaque": opaque(message, host),
        "opaque of calls": [opaque(call, host) for call in message.tool_calls if call.opaque],
    }
    usual = ("", [], {}, [0, 0, 0], "stop", "served")
    return {key: value for key, value in data.items() if value not in usual}


def opaque(kept: Any, host: str) -> dict[str, Any]:
    """Return the data for the host; the key of chat completions is `host`, other keys are the wire form."""
    data: dict[str, Any] = {}
    for key, value in kept.opaque.items():
        form, _, owner = key.partition("@")
        assert owner.startswith(host) or form in ("openai", "completion")
        data.setdefault("host" if form == "openai" and owner else form, {}).update(json.loads(json.dumps(value)))
    return data


async def outcome(model: Any, *, is_streamed: bool) -> tuple[dict[str, Any], str]:
    """Ask a model, and return the reply or the error as data, and the message of the error."""
    heard: list[Delta] = []
    try:
        reply = await model.request(composed(tools=[ADD]), on_delta=heard.append if is_streamed else None)
    except ModelError as error:
        assert (error.model, error.host) == (model.name, model.host)
        details = {name: getattr(error, name, None) for name in DETAILS}
        given = {
            name: value for name, value in details.items() if value is not None and value is not False and value != ""
        }
        return {"error": {"class": type(error).__name__, **given}}, str(error)
    ids = [call.id for call in reply.message.tool_calls]
    assert all(ids) and len(set(ids)) == len(ids)
    if is_streamed:
        assert "".join([delta.text for delta in heard if delta.kind in ("text", "refusal")]) == reply.message.text
        if any(delta.kind == "thinking" and delta.text for delta in heard) != bool(reply.message.reasoning):
            return {"deltas": [delta for delta in heard if delta.kind == "thinking"]}, ""
    data = as_data(reply, model.host)
    if data.get("model") == model.name:  # the server does not name it
        data["model"] = "asked"
    return {"reply": data}, ""


@pytest.mark.parametrize("wire", FORMS.values(), ids=FORMS)
def test_each_line_is_read_as_its_expected_result(server: ChatServer, wire: Wire) -> None:
    failures: list[str] = []

    async def check(case: dict[str, Any], *, is_streamed: bool) -> None:
        name = server.on(f"{wire.name}: {case['name']}", answer(case, wire))
        model = model_of(wire, server, name)
        result, message = await outcome(model, is_streamed=is_streamed)
        await model.aclose()  # type: ignore[attr-defined]
        expected = {key: case[key] for key in ("reply", "error") if key in case}
        if result != expected or case.get("says", "") not in message or len(message) > 1_000:
            how = "streamed" if is_streamed else "whole"
            failures.append(f"{case['name']}, {how}: expected {expected}, got {result} {message}")

    async def main() -> None:
        for case in cases(wire):
            for how in ("whole", "streamed"):
                if case.get("only", how) == how:
                    await check(case, is_streamed=how == "streamed")

    asyncio.run(main())
    assert failures == []


def test_no_two_lines_have_the_same_name() -> None:
    for wire in FORMS.values():
        names = [case["name"] for case in cases(wire)]
        assert len(names) == len(set(names))
