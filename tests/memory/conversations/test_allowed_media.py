"""Files and private addresses in messages in the form of a provider: only if they are allowed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentkit import Session
from agentkit.memory import InvalidArgument, Memory
from agentkit.prompts import ContextError, MessageError, PromptContext
from tests.raising import raises

PRIVATE = "http://127.0.0.1:1/a.png"


@contextmanager
def refuses(kind: type[Exception], place: str) -> Iterator[None]:
    """Check the error of the address in the first message of an argument."""
    with pytest.raises(kind) as caught:
        yield
    assert f"{place}[0].content[0].image_url" in [problem.place for problem in caught.value.problems]  # type: ignore[attr-defined]


def user_message(address: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": address}}]}


@pytest.fixture(params=["file:///etc/passwd", PRIVATE])
def message(request: pytest.FixtureRequest) -> dict[str, Any]:
    return user_message(request.param)


def test_a_stored_session(tmp_path: Path, message: dict[str, Any]) -> None:
    with Memory(tmp_path / "home") as memory:
        session = memory.session("one")
        with refuses(InvalidArgument, "append"):
            session.append(message)
        with refuses(InvalidArgument, "append"):
            session.append_now(message)
        assert len(session.append(message, allow_media=True)) == 1
        with refuses(InvalidArgument, "append"):
            session.append(message)
        opened = memory.session("two", allow_media=True)
        opened.append(message)
        assert opened.conversation[0].parts[0]
        opened.fork("three").append(message)


def test_a_session_in_memory(message: dict[str, Any]) -> None:
    session = Session()
    with refuses(MessageError, "append"):
        session.append(message)
    assert session.append(message, allow_media=True)[0].parts[0]


@pytest.mark.parametrize("name", ["conversation", "intermediate"])
def test_a_context(name: str, message: dict[str, Any]) -> None:
    with refuses(ContextError, name):
        PromptContext(user_input="q", **{name: [message]})  # type: ignore[arg-type]
    context = PromptContext(user_input="q", allow_media=True, **{name: [message]})  # type: ignore[arg-type]
    assert getattr(context, name)[0].parts[0]
    with refuses(ContextError, name):
        context.evolve(**{name: [message]})  # type: ignore[arg-type]
    assert getattr(context.evolve(allow_media=True, **{name: [message]}), name)[0].parts[0]  # type: ignore[arg-type]
    with raises(ContextError, name="allow_media"):
        PromptContext(user_input="q", allow_media="yes")  # type: ignore[arg-type]
