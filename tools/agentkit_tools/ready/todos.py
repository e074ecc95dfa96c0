"""`todo_tools`: a list of tasks that the model writes, shown in each prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from typing_extensions import TypedDict

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tokens.budget import Size
from agentkit_prompts.tree.layers import Place
from agentkit_prompts.tree.leaves import TextPrompt
from agentkit_prompts.tree.prompt import BasePrompt
from agentkit_tools.tool import Tool
from agentkit_tools.toolsets.context_toolset import ContextToolset

WRITE_TOOL = "write_todos"
_ABOUT = (
    "Write the list of your tasks, which replaces the list before. Use it for work of several steps: write the tasks "
    "first, and write the list again when the status of a task changes. The prompt shows the latest list."
)
_SHOWN = "Your tasks (x done, ~ started), from the tool write_todos:\n{{ todos }}"
_MARKS = {"open": " ", "started": "~", "done": "x"}
_DONE = "- [x] "
_MAX_TODOS = 100
_MAX_CHARS = 500


class Todo(TypedDict):
    """A task of the list."""

    task: Annotated[str, Field(min_length=1, max_length=_MAX_CHARS, description="The task, in one line.")]
    status: Literal["open", "started", "done"]


def todo_tools() -> ContextToolset:
    """Return the tool `write_todos`, with which the model writes the list of its tasks.

    Pass it to an agent as one of its tools. The latest list is a layer of each prompt, `todos` in templates. Within a
    run it is after the tool calls, so that an update breaks no prompt cache; the next run shows it before the input.
    The list is read from the messages of the conversation: resumed and durable runs, replays and later turns have it,
    also after compaction. A list without unfinished tasks is not shown in later turns.
    """
    return _TodoTools([Tool(_write, name=WRITE_TOOL, description=_ABOUT, sequential=True)])


async def _write(todos: Annotated[list[Todo], Field(max_length=_MAX_TODOS)]) -> dict[str, str]:
    lines = [f"- [{_MARKS[todo['status']]}] {' '.join(todo['task'].split())}" for todo in todos]
    return {"todos": "\n".join(lines)}


class _TodoTools(ContextToolset):
    __slots__ = ()

    noun: ClassVar[str] = "a list of tasks"
    shows: ClassVar[frozenset[str]] = frozenset({"todos"})
    advice: ClassVar[str] = (
        "add a prompt that reads them, such as Layers(..., after_intermediate=TextPrompt(Template('{{ todos }}'))); in "
        "a folder of prompts, a file with `role: after_intermediate`"
    )

    @classmethod
    def prompts(cls) -> Mapping[Place, BasePrompt]:
        """Return the prompts of the list. Before the input, it does not change within a run."""
        size = Size(cut="tail", priority=44)
        first = Template(f"{{% if todos and not intermediate %}}{_SHOWN}{{% endif %}}")
        later = Template(f"{{% if todos %}}{_SHOWN}{{% endif %}}")
        return {
            "before_input": TextPrompt(first, name="todos", size=size),
            "after_intermediate": TextPrompt(later, name="current_todos", size=size),
        }

    def add_to(self, ctx: PromptContext) -> PromptContext:
        """Return the context with the latest list of its messages.

        Without a list in the messages, the list of the context stays: compaction may have removed the messages.
        """
        todos = _latest(ctx.intermediate)
        if todos is None:
            todos = _latest(ctx.conversation)
            if todos is not None and all(line.startswith(_DONE) for line in todos.splitlines()):
                todos = ""
        if todos is None or todos == (ctx.todos or ""):
            return ctx
        return ctx.evolve(todos=todos or None)


def _latest(history: Conversation) -> str | None:
    """Return the latest list in messages; None without a list. The log of the messages caches the lists."""
    for todos in reversed(history.derive(_todos_in)):
        if todos is not None:
            return todos
    return None


def _todos_in(message: Message) -> str | None:
    """Return the list if a message is the result of `write_todos`."""
    if message.role != "tool" or message.name != WRITE_TOOL:
        return None
    try:
        result = json.loads(message.text)
    except (ValueError, RecursionError):
        return None  # a failure
    if isinstance(result, dict) and isinstance(result.get("todos"), str):
        return str(result["todos"])
    return None
