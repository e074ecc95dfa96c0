"""The turns of W1: the simplest layers, and layers with custom templates and settings, as users write them."""

from __future__ import annotations

import warnings
from itertools import count
from typing import Any

from agentkit.prompts import (
    AdditionalInfoPrompt,
    Budget,
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
    Size,
    TextPrompt,
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
MARKDOWN = (
    "## Install\nRun `pip install atlas`, then read [the guide](docs/guide.md). Options:\n- `--fast`: no checks\n"
    + ("- `--log`: a log of all steps\n\n")
)
MARKDOWN_FACTS = tuple(Fact(f"Fact {number}: see [the guide](docs/{number}.md). {WORDS}") for number in range(10))
MARKDOWN_DOCUMENTS = tuple(
    Document((MARKDOWN + WORDS * 8)[:760], id=f"m{number}", title=f"Guide > Document {number}", source=f"m/{number}.md")
    for number in range(20)
)
KWARGS: dict[str, Any] = {
    "root": "/srv/app", "branch": "main", "user": "ada", "line": 42, "dry_run": True, "language": "en"
}  # fmt: skip
EXAMPLES = tuple(Example(f"Question {number}? {WORDS}", f"Answer {number}. {WORDS}") for number in range(5))
KWARGS_TEXT = "root: {{ root }}\nbranch: {{ branch }}\nuser: {{ user }}\nline: {{ line }}\ndry run: {{ dry_run }}\n"
KWARGS_TEXT += "language: {{ language }}"


def history(size: int, start: str) -> list[Message]:
    """Return a history of `size` turns, each with a question and an answer; `start` is the start of each text."""
    text = start + WORDS * 2
    return [Message(role, f"{number} {text}") for number in range(size) for role in ("user", "assistant")]


class Turn:
    """The turn that every candidate composes: default templates, and a budget."""

    name = "W1"
    layers = Layers(
        system=[
            TextPrompt(SYSTEM),
            ToolPrompt(),
            ExamplesPrompt(),
            KnowledgePrompt(),
            AdditionalInfoPrompt(KWARGS_TEXT),
        ],
        before_input=MemoPrompt(),
        input=WrapPrompt((UserInputPrompt(),), "Question: {{ wrapped_str }}\nAnswer from the documents."),
    )
    budget: int | Budget = 1_000_000
    documents = DOCUMENTS
    facts = FACTS
    start = ""
    """Start of each message of the history."""
    endpoint: tuple[str | None, str] = (None, "")
    """Host and model of the request."""
    jinja_system = (
        "{{ system }}\n\n{% for t in tools %}{{ t.json }}{% if not loop.last %}\n{% endif %}{% endfor %}\n\n"
        "{% for e in examples %}Input: {{ e.input }}\nOutput: {{ e.output }}{% if not loop.last %}\n\n{% endif %}"
        "{% endfor %}\n\n{% for f in facts %}- {{ f.text }}{% if not loop.last %}\n{% endif %}{% endfor %}\n\n"
        + KWARGS_TEXT
    )
    jinja_user = (
        "{% for d in documents %}[{{ d.label }}] {{ d.title }}\n{{ d.text }}{% if not loop.last %}\n\n{% endif %}"
        "{% endfor %}\n\nQuestion: {{ question }}\nAnswer from the documents."
    )

    def __init__(self, size: int) -> None:
        self.messages = history(size, self.start)
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
        facts = "\n".join([f"- {fact.text}" for fact in self.facts])
        return f"{SYSTEM}\n\n{tools}\n\n{examples}\n\n{facts}\n\n{self.kwargs_by_hand()}"

    def kwargs_by_hand(self) -> str:
        """Return the text of the additional kwargs with f-strings."""
        k = KWARGS
        kwargs = f"root: {k['root']}\nbranch: {k['branch']}\nuser: {k['user']}\nline: {k['line']}\n"
        return kwargs + f"dry run: {k['dry_run']}\nlanguage: {k['language']}"

    def user_by_hand(self) -> str:
        """Return the user text with f-strings."""
        documents = "\n\n".join([f"[{doc.label}] {doc.title}\n{doc.text}" for doc in self.documents])
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
            documents=self.documents,
            knowledge=self.facts,
            tools=TOOLS,
            examples=EXAMPLES,
        )
        return compose(self.layers, ctx, budget=self.budget, cache=cache)

    def payload(self, cache: RenderCache | None) -> Any:
        """Return the payload of a new context."""
        host, model = self.endpoint
        return self.composed(cache).to_openai(host, model=model)


class CustomTurn(Turn):
    """A turn as users write it: custom templates, sizes, a reserve for the answer, an endpoint, texts in Markdown."""

    name = "W1 custom"
    layers = Layers(
        system=[
            TextPrompt(SYSTEM, name="instructions"),
            ToolPrompt("Tools:\n{% for tool in tools %}* {{ tool.name }}: {{ tool.description }}\n{% endfor %}"),
            ExamplesPrompt(
                template="{% for example in examples %}<example>\nQ: {{ example.input }}\nA: {{ example.output }}\n"
                "</example>\n{% endfor %}",
                size=Size(cut="items", priority=15),
            ),
            KnowledgePrompt("Facts:\n{% for fact in knowledge %}{{ loop.index }}. {{ fact.text }}\n{% endfor %}"),
            AdditionalInfoPrompt(KWARGS_TEXT),
        ],
        before_input=MemoPrompt(
            "{% for document in documents %}## {{ document.title }} ({{ document.source }}) [{{ document.label }}]\n"
            "{{ document.text }}\n{% endfor %}",
            size=Size(cut="items", min=500, priority=60),
        ),
        input=WrapPrompt((UserInputPrompt(),), "Question: {{ wrapped_str }}\nAnswer from the documents."),
    )
    documents = MARKDOWN_DOCUMENTS
    facts = MARKDOWN_FACTS
    start = "Note: see [the guide](docs/guide.md). "
    budget = Budget(1_000_000, reserve=4_000)
    endpoint = ("api.example.com", "example-large")
    jinja_system = (
        "{{ system }}\n\nTools:\n{% for t in tools %}* {{ t.name }}: {{ t.description }}\n{% endfor %}\n\n"
        "{% for e in examples %}<example>\nQ: {{ e.input }}\nA: {{ e.output }}\n</example>\n{% endfor %}\n\n"
        "Facts:\n{% for f in facts %}{{ loop.index }}. {{ f.text }}\n{% endfor %}\n\n" + KWARGS_TEXT
    )
    jinja_user = (
        "{% for d in documents %}## {{ d.title }} ({{ d.source }}) [{{ d.label }}]\n{{ d.text }}\n{% endfor %}"
        "\n\nQuestion: {{ question }}\nAnswer from the documents."
    )

    def system_by_hand(self) -> str:
        tools = "".join([f"* {tool.name}: {tool.description}\n" for tool in TOOLS])
        examples = "".join(
            [f"<example>\nQ: {example.input}\nA: {example.output}\n</example>\n" for example in EXAMPLES]
        )
        facts = "".join([f"{number}. {fact.text}\n" for number, fact in enumerate(self.facts, 1)])
        return f"{SYSTEM}\n\nTools:\n{tools}\n\n{examples}\n\nFacts:\n{facts}\n\n{self.kwargs_by_hand()}"

    def user_by_hand(self) -> str:
        documents = "".join([f"## {doc.title} ({doc.source}) [{doc.label}]\n{doc.text}\n" for doc in self.documents])
        return f"{documents}\n\nQuestion: {self.question()}\nAnswer from the documents."
