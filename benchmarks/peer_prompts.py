"""The prompts of `compose.py` by other libraries: templates are compiled once, the history is not rendered again."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

from turns import EXAMPLES, KWARGS, SYSTEM, TOOLS, Turn

SYSTEM_TEMPLATE = "{system}\n\n{tools}\n\n{examples}\n\n{facts}\n\n{kwargs}"
USER_TEMPLATE = "{documents}\n\nQuestion: {question}\nAnswer from the documents."


def peer_prompts(turn: Turn) -> dict[str, Callable[[], Any]]:
    """Return functions that build the messages of a new question, by the name of the installed library.

    The templates of the last three libraries contain the default texts only.
    """
    return dict(_installed(turn))


def _installed(turn: Turn) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "jinja2 by hand", jinja2_prompt(turn)
    if importlib.util.find_spec("minijinja") is not None:
        yield "minijinja by hand", _minijinja(turn)
    if type(turn) is not Turn:
        return
    peers = (
        ("langchain-core", "langchain_core", _langchain),
        ("llama-index", "llama_index", _llama_index),
        ("haystack", "haystack", _haystack),
    )
    for name, module, prompt in peers:
        if importlib.util.find_spec(module) is not None:
            yield name, prompt(turn)


def jinja2_prompt(turn: Turn) -> Callable[[], Any]:
    """Return a function that builds the payload with plain jinja2."""
    import jinja2

    environment = jinja2.Environment()
    system = environment.from_string(turn.jinja_system)
    user = environment.from_string(turn.jinja_user)

    def payload() -> Any:
        head = system.render(system=SYSTEM, tools=TOOLS, examples=EXAMPLES, facts=turn.facts, **KWARGS)
        tail = user.render(documents=turn.documents, question=turn.question())
        return {"messages": [{"role": "system", "content": head}, *turn.wire, {"role": "user", "content": tail}]}

    return payload


def _minijinja(turn: Turn) -> Callable[[], Any]:
    from minijinja import Environment

    environment = Environment(templates={"system": turn.jinja_system, "user": turn.jinja_user})

    def payload() -> Any:
        head = environment.render_template(
            "system", system=SYSTEM, tools=TOOLS, examples=EXAMPLES, facts=turn.facts, **KWARGS
        )
        tail = environment.render_template("user", documents=turn.documents, question=turn.question())
        return {"messages": [{"role": "system", "content": head}, *turn.wire, {"role": "user", "content": tail}]}

    return payload


def _texts(turn: Turn) -> dict[str, str]:
    """Return the variables of the templates of a new question; these libraries have no templates of items."""
    return {
        "system": SYSTEM,
        "tools": "\n".join([tool.json for tool in TOOLS]),
        "examples": "\n\n".join([f"Input: {example.input}\nOutput: {example.output}" for example in EXAMPLES]),
        "facts": "\n".join([f"- {fact.text}" for fact in turn.facts]),
        "kwargs": "\n".join([f"{name}: {value}" for name, value in KWARGS.items()]),
        "documents": "\n\n".join(
            [f"[{document.label}] {document.title}\n{document.text}" for document in turn.documents]
        ),
        "question": turn.question(),
    }


def _langchain(turn: Turn) -> Callable[[], Any]:
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

    prompt = ChatPromptTemplate.from_messages(
        [("system", SYSTEM_TEMPLATE), MessagesPlaceholder("history"), ("human", USER_TEMPLATE)]
    )
    history = [(HumanMessage if message.role == "user" else AIMessage)(message.text) for message in turn.messages]
    return lambda: prompt.format_messages(history=history, **_texts(turn))


def _llama_index(turn: Turn) -> Callable[[], Any]:
    from llama_index.core import ChatPromptTemplate
    from llama_index.core.llms import ChatMessage

    prompt = ChatPromptTemplate.from_messages([("system", SYSTEM_TEMPLATE), ("user", USER_TEMPLATE)])
    history = [ChatMessage(role=message.role, content=message.text) for message in turn.messages]

    def messages() -> Any:
        system, user = prompt.format_messages(**_texts(turn))
        return [system, *history, user]

    return messages


def _haystack(turn: Turn) -> Callable[[], Any]:
    from haystack.components.builders import ChatPromptBuilder
    from haystack.dataclasses import ChatMessage

    names = list(_texts(turn))
    templates = [template.replace("{", "{{").replace("}", "}}") for template in (SYSTEM_TEMPLATE, USER_TEMPLATE)]
    builder = ChatPromptBuilder(
        [ChatMessage.from_system(templates[0]), ChatMessage.from_user(templates[1])], required_variables=names
    )
    create = {"user": ChatMessage.from_user, "assistant": ChatMessage.from_assistant}
    history = [create[message.role](message.text) for message in turn.messages]

    def messages() -> Any:
        system, user = builder.run(**_texts(turn))["prompt"]
        return [system, *history, user]

    return messages
