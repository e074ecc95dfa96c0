"""W1: the whole prompt of a turn, as messages, as one string and by a chat template; trimming of a long history.

Each turn contains a new question, as in a conversation; system text, tools, facts, documents, examples and history are
the same. Warm: with a cache of renderings; cold: without. The timed call includes the creation of the context. Spans,
trust and the budget check are on.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from harness import Figure, figures, interleave, main

from agentkit.prompts import (
    AdditionalInfoPrompt,
    Conversation,
    Document,
    Example,
    ExamplesPrompt,
    Fact,
    KnowledgePrompt,
    Layers,
    MemoPrompt,
    Message,
    PromptContext,
    RenderCache,
    TextPrompt,
    ToolCall,
    ToolPrompt,
    ToolSpec,
    UserInput,
    UserInputPrompt,
    WrapPrompt,
    compose,
)
from agentkit.prompts.chat_templates import CHAT_TEMPLATES

warnings.simplefilter("ignore")
WORDS = "the quick brown fox jumps over the lazy dog while seven wizards mix potent drinks under bright lamps "
BUDGET = 1_000_000
numbers = count()
QWEN: Any = CHAT_TEMPLATES.get("qwen2d5")()
BEGINS = {"user": "<|im_start|>user\n", "assistant": "<|im_start|>assistant\n"}

SYSTEM = "You answer questions about the project from the documents. " * 8
TOOLS = tuple(
    ToolSpec(
        f"tool_{number}",
        f"Tool number {number}: " + WORDS,
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["query"],
        },
    )
    for number in range(20)
)
FACTS = tuple(Fact(f"Fact {number}: {WORDS}") for number in range(10))
DOCUMENTS = tuple(
    Document((WORDS * 8)[:760], id=f"d{number}", title=f"Document {number}", source=f"docs/{number}.md")
    for number in range(20)
)
KWARGS: dict[str, Any] = {
    "root": "/srv/app", "branch": "main", "user": "ada", "line": 42, "dry_run": True, "language": "en"
}  # fmt: skip
EXAMPLES = tuple(Example(f"Question {number}? {WORDS}", f"Answer {number}. {WORDS}") for number in range(5))
KWARGS_TEXT = "root: {{ root }}\nbranch: {{ branch }}\nuser: {{ user }}\nline: {{ line }}\ndry run: {{ dry_run }}\n"
KWARGS_TEXT += "language: {{ language }}"
LAYERS = Layers(
    system=[TextPrompt(SYSTEM), ToolPrompt(), ExamplesPrompt(), KnowledgePrompt(), AdditionalInfoPrompt(KWARGS_TEXT)],
    before_input=MemoPrompt(),
    input=WrapPrompt((UserInputPrompt(),), "Question: {{ wrapped_str }}\nAnswer from the documents."),
)


def history(size: int) -> list[Message]:
    """Return a history of `size` turns, each with a question and an answer."""
    return [Message(role, f"{number} {WORDS * 2}") for number in range(size) for role in ("user", "assistant")]


class Turn:
    """The turn that every candidate composes."""

    def __init__(self, size: int) -> None:
        self.messages = history(size)
        self.wire = [{"role": message.role, "content": message.content} for message in self.messages]
        self.conversation = Conversation(self.messages)
        self.render_cache = RenderCache()

    def question(self) -> str:
        """Return a new question."""
        return f"What about number {next(numbers)}?"

    def system_by_hand(self) -> str:
        """Return the system text with f-strings."""
        tools = "\n".join([tool.json for tool in TOOLS])
        examples = "\n\n".join([f"Input: {example.input}\nOutput: {example.output}" for example in EXAMPLES])
        facts = "\n".join([f"- {fact.text}" for fact in FACTS])
        k = KWARGS
        kwargs = f"root: {k['root']}\nbranch: {k['branch']}\nuser: {k['user']}\nline: {k['line']}\n"
        kwargs += f"dry run: {k['dry_run']}\nlanguage: {k['language']}"
        return f"{SYSTEM}\n\n{tools}\n\n{examples}\n\n{facts}\n\n{kwargs}"

    def user_by_hand(self) -> str:
        """Return the user text with f-strings."""
        documents = "\n\n".join([f"[{doc.label}] {doc.title}\n{doc.text}" for doc in DOCUMENTS])
        return f"{documents}\n\nQuestion: {self.question()}\nAnswer from the documents."

    def messages_by_hand(self) -> Any:
        """Return the payload with f-strings."""
        system, user = self.system_by_hand(), self.user_by_hand()
        return {"messages": [{"role": "system", "content": system}, *self.wire, {"role": "user", "content": user}]}

    def string_by_hand(self) -> str:
        """Return one string with f-strings."""
        history_text = "\n\n".join([f"{message.role}: {message.content}" for message in self.messages])
        return f"system: {self.system_by_hand()}\n\n{history_text}\n\nuser: {self.user_by_hand()}"

    def chat_by_hand(self) -> str:
        """Return the text of the chat template of Qwen 2.5 with f-strings."""
        tools = "".join([f'\n{{"type": "function", "function": {tool.json}}}' for tool in TOOLS])
        history_text = "".join([f"{BEGINS[message.role]}{message.content}<|im_end|>\n" for message in self.messages])
        system = f"<|im_start|>system\n{self.system_by_hand()}{QWEN.tools}{tools}{QWEN.eotools}<|im_end|>\n"
        return f"{system}{history_text}<|im_start|>user\n{self.user_by_hand()}<|im_end|>\n<|im_start|>assistant\n"

    def composed(self, cache: RenderCache | None, conversation: Conversation | None = None) -> Any:
        """Return the composition of a new context."""
        ctx = PromptContext(
            user_input=UserInput(input=self.question(), additional_kwargs=KWARGS),
            conversation=conversation or self.conversation,
            documents=DOCUMENTS,
            knowledge=FACTS,
            tools=TOOLS,
            examples=EXAMPLES,
        )
        return compose(LAYERS, ctx, budget=BUDGET, cache=cache)


def repeat(work: Callable[[], object]) -> Callable[[int], None]:
    """Return a function that calls `work` n times."""

    def times(n: int) -> None:
        for _ in range(n):
            work()

    return times


def jinja_by_hand(turn: Turn) -> Callable[[], Any]:
    """Return a function that builds the payload with plain jinja2; templates are compiled once."""
    import jinja2

    environment = jinja2.Environment()
    system = environment.from_string(
        "{{ system }}\n\n{% for t in tools %}{{ t.json }}{% if not loop.last %}\n{% endif %}{% endfor %}\n\n"
        "{% for e in examples %}Input: {{ e.input }}\nOutput: {{ e.output }}{% if not loop.last %}\n\n{% endif %}"
        "{% endfor %}\n\n{% for f in facts %}- {{ f.text }}{% if not loop.last %}\n{% endif %}{% endfor %}\n\n"
        + KWARGS_TEXT
    )
    user = environment.from_string(
        "{% for d in documents %}[{{ d.label }}] {{ d.title }}\n{{ d.text }}{% if not loop.last %}\n\n{% endif %}"
        "{% endfor %}\n\nQuestion: {{ question }}\nAnswer from the documents."
    )

    def payload() -> Any:
        head = system.render(system=SYSTEM, tools=TOOLS, examples=EXAMPLES, facts=FACTS, **KWARGS)
        tail = user.render(documents=DOCUMENTS, question=turn.question())
        return {"messages": [{"role": "system", "content": head}, *turn.wire, {"role": "user", "content": tail}]}

    return payload


def langchain_by_hand(turn: Turn) -> Callable[[], Any] | None:
    """Return a function that formats langchain-core's ChatPromptTemplate; None if not installed."""
    if importlib.util.find_spec("langchain_core") is None:
        return None
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

    prompt = ChatPromptTemplate.from_messages(
        [
            ("system", "{system}\n\n{tools}\n\n{examples}\n\n{facts}\n\n{kwargs}"),
            MessagesPlaceholder("history"),
            ("human", "{documents}\n\nQuestion: {question}\nAnswer from the documents."),
        ]
    )
    history_messages = [
        (HumanMessage if message.role == "user" else AIMessage)(message.text) for message in turn.messages
    ]

    def payload() -> Any:
        return prompt.format_messages(
            system=SYSTEM,
            tools="\n".join([tool.json for tool in TOOLS]),
            examples="\n\n".join([f"Input: {example.input}\nOutput: {example.output}" for example in EXAMPLES]),
            facts="\n".join([f"- {fact.text}" for fact in FACTS]),
            kwargs="\n".join([f"{name}: {value}" for name, value in KWARGS.items()]),
            history=history_messages,
            documents="\n\n".join([f"[{document.label}] {document.title}\n{document.text}" for document in DOCUMENTS]),
            question=turn.question(),
        )

    return payload


def messages(size: int) -> Callable[[int], Iterable[Figure]]:
    """Measure the chat payload with a history of `size` turns."""

    def measure(rounds: int) -> Iterable[Figure]:
        turn = Turn(size)
        assert _sizes(turn.composed(None).to_openai()) == _sizes(turn.messages_by_hand())
        peer = langchain_by_hand(turn)
        candidates = {
            "limit": turn.messages_by_hand,
            "ours warm": lambda: turn.composed(turn.render_cache).to_openai(),
            "ours cold": lambda: turn.composed(None).to_openai(),
            "jinja2 by hand": jinja_by_hand(turn),
            **({"langchain-core": peer} if peer is not None else {}),
        }
        seconds = interleave({name: repeat(work) for name, work in candidates.items()}, 200, rounds)
        return figures(f"W1 messages, N={size}", seconds)

    return measure


def string(rounds: int) -> Iterable[Figure]:
    """Measure the raw string with a history of 40 turns."""
    turn = Turn(40)
    candidates = {
        "limit": turn.string_by_hand,
        "ours warm": lambda: turn.composed(turn.render_cache).to_text(),
        "ours cold": lambda: turn.composed(None).to_text(),
    }
    assert len(turn.composed(None).to_text()) == len(turn.string_by_hand())
    seconds = interleave({name: repeat(work) for name, work in candidates.items()}, 200, rounds)
    return figures("W1 string, N=40", seconds)


def chat(size: int) -> Callable[[int], Iterable[Figure]]:
    """Measure the text of a chat template with guarded control tokens; cold also builds a new `Conversation`."""

    def measure(rounds: int) -> Iterable[Figure]:
        turn = Turn(size)
        candidates = {
            "limit": turn.chat_by_hand,
            "ours warm": lambda: turn.composed(turn.render_cache).to_text(QWEN),
            "ours cold": lambda: turn.composed(None, Conversation(turn.messages)).to_text(QWEN),
            "jinja2 by hand": chat_by_jinja(turn),
        }
        assert len({len(work()) for work in candidates.values()}) == 1
        seconds = interleave({name: repeat(work) for name, work in candidates.items()}, 4000 // size, rounds)
        return figures(f"W1 chat template, N={size}", seconds)

    return measure


def chat_by_jinja(turn: Turn) -> Callable[[], str]:
    """Return a function that renders the chat template with plain jinja2, compiled once, without guards."""
    import jinja2

    template = jinja2.Environment(keep_trailing_newline=True).from_string(
        "<|im_start|>system\n{{ system }}{{ head }}{% for t in tools %}\n"
        '{"type": "function", "function": {{ t.json }}}{% endfor %}{{ tail }}<|im_end|>\n'
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "<|im_start|>user\n{{ user }}<|im_end|>\n<|im_start|>assistant\n"
    )
    payload = jinja_by_hand(turn)

    def text() -> str:
        system, *_, user = payload()["messages"]
        return template.render(
            system=system["content"],
            user=user["content"],
            head=QWEN.tools,
            tail=QWEN.eotools,
            tools=TOOLS,
            messages=turn.messages,
        )

    return text


def _sizes(payload: Any) -> list[int]:
    return [len(message["content"]) for message in payload["messages"]]


def trimming(rounds: int) -> Iterable[Figure]:
    """Trim 2,000 messages to a budget without splitting pairs of call and result; the peer is `trim_messages`."""
    if importlib.util.find_spec("langchain_core") is None:
        return []
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, trim_messages

    ours: list[Message] = []
    theirs: list[BaseMessage] = []
    for number in range(500):
        text, call = f"{number} {WORDS}", f"c{number}"
        ours += [
            Message("user", text),
            Message("assistant", "", (ToolCall(call, "find", "{}"),)),
            Message("tool", text, tool_call_id=call),
            Message("assistant", text),
        ]
        theirs += [
            HumanMessage(text),
            AIMessage("", tool_calls=[{"id": call, "name": "find", "args": {}}]),
            ToolMessage(text, tool_call_id=call),
            AIMessage(text),
        ]
    layers, limit = Layers("You are helpful."), 8_000

    def trim_ours() -> Any:
        ctx = PromptContext(user_input=f"and {next(numbers)}?", conversation=Conversation(ours))
        return compose(layers, ctx, budget=limit).to_openai()

    def trim_theirs() -> Any:
        return trim_messages(
            [*theirs, HumanMessage(f"and {next(numbers)}?")],
            max_tokens=limit,
            strategy="last",
            token_counter="approximate",
            start_on="human",
        )

    candidates = {"langchain-core": repeat(trim_theirs), "ours, nothing known": repeat(trim_ours)}
    seconds = interleave(candidates, 5, rounds)
    return figures("trim 2,000 messages", seconds, unit="ms")


if __name__ == "__main__":
    main(
        __doc__,
        {
            "messages": messages(40),
            "long": messages(1000),
            "string": string,
            "chat": chat(40),
            "chat_long": chat(1000),
            "trimming": trimming,
        },
    )
