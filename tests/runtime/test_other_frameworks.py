"""What comes from another framework is taken, or refused with what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit import Agent, Message, ScriptedModel, Session
from agentkit.errors import AgentDefinitionError, UnknownOption
from agentkit.prompts import MessageError
from tests.raising import raises


class HumanMessage:
    """Shaped as LangChain's."""

    type = "human"
    content = "Hi"

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {"type": self.type, "content": self.content, "additional_kwargs": {}}


class Document:
    page_content = "At noon."
    metadata: dict[str, str] = {}  # noqa: RUF012 (as it is there)


class Retriever:
    def invoke(self, query: str) -> list[Document]:
        return [Document()]


def test_a_session_begins_with_messages_in_the_form_of_a_provider() -> None:
    session = Session(conversation=[{"role": "user", "content": "Hi"}, Message("assistant", "Hello")])
    assert [message.text for message in session.conversation] == ["Hi", "Hello"]
    model = ScriptedModel(["You said hi."])
    Agent(model).run_sync("What did I say?", session=session)
    assert [message.text for message in model.requests[0].conversation] == ["Hi", "Hello"]


@pytest.mark.parametrize("given", [[HumanMessage()], [5], "Hi", 5, [{"role": "none"}]])
def test_what_is_no_message_is_refused_when_the_session_is_made(given: Any) -> None:
    with pytest.raises(MessageError):
        Session(conversation=given)


def test_messages_of_langchain_are_refused_with_what_writes_them() -> None:
    with pytest.raises(MessageError):
        Session(conversation=[HumanMessage()])  # type: ignore[list-item]


def test_a_retriever_is_refused_with_the_function_to_write() -> None:
    with raises(AgentDefinitionError, name="memory", value="Retriever"):
        Agent(ScriptedModel([]), memory=Retriever())  # type: ignore[arg-type]
    with raises(AgentDefinitionError, name="memory", value="str"):
        Agent(ScriptedModel([]), memory="notes")  # type: ignore[arg-type]


def test_documents_of_another_class_are_refused_with_how_to_make_ours() -> None:
    agent = Agent(ScriptedModel([]), memory=lambda query: Retriever().invoke(query))  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError):
        agent.run_sync("When?")


def test_the_thread_of_a_run_is_a_session() -> None:
    agent = Agent(ScriptedModel([]))
    with raises(UnknownOption, name="config", meant={"config": None}):
        agent.run_sync("Hi", config={"configurable": {"thread_id": "1"}})  # type: ignore[call-arg]
