"""gpt-oss: instructions and tools are a developer message, and each call is a message to its function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from agentkit_prompts.chat_templates.builtin.typescript import function_type
from agentkit_prompts.chat_templates.chat_turns import Tools, Turn, calls_of, json_text
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate, Task

_CALL = "<|call|>"


class GptOssTemplate(RoleMarkerTemplate):
    """`render` writes the harmony format of OpenAI (github.com/openai/harmony, docs/format.md).

    A system message is the instructions of the developer message, after the default system message. A reply is on the
    channel `final`; before a call, its text is on the channel `commentary`. The thinking of messages since the last
    message of the user is on the channel `analysis`. LMDeploy and `messages2prompt` write no channels and no tools.
    """

    developer: str = "<|start|>developer<|message|>"
    tool_note: str = "\nCalls to these tools must go to the commentary channel: 'functions'."
    """End of the default system message if the conversation has tools."""

    marker_fields: ClassVar[tuple[str, ...]] = (
        *("system", "eosys", "user", "eoh", "assistant", "eoa", "separator", "developer"),
    )
    writes_tools: ClassVar[bool] = True
    signs: ClassVar[tuple[str, ...] | None] = ()

    def task(self, tools: Tools | None = None, **asked: Any) -> Task:
        task = super().task(tools, **asked)
        if task.strict:
            return task
        return task._replace(markers=super().markers())

    def markers(self) -> dict[str, tuple[str, str]]:
        return {
            **super().markers(),
            "system": (self.developer, self.eosys),
            "assistant": (f"{self.assistant}{_header('final')}", self.eoa),
            "assistant call": (self.assistant, _CALL),
            "tool": ("<|start|>functions.", self.eoh),
        }

    def missing_places(self, turns: Sequence[Turn], task: Task) -> list[str]:
        """Return the places of results whose tool is unknown."""
        roles = [(turn["role"], turn.get("name")) for turn in _with_names(turns)]
        return [f"messages[{index}]" for index, (role, name) in enumerate(roles) if role == "tool" and not name]

    def head(self, turns: Sequence[Turn], task: Task) -> list[str]:
        """Return the text before all other messages: the system message and the developer message."""
        if not task.strict:
            return super().head(turns, task)
        system = self.opening(task)
        if self.meta_instruction is not None and task.sequence_start:
            note = self.tool_note if task.tools else ""
            system += f"{self.system}{self.meta_instruction}{note}{self.eosys}"
        functions = "".join([function_type(tool) for tool in task.tools or ()])
        tools = ""
        if functions:
            tools = f"# Tools\n\n## functions\n\nnamespace functions {{\n\n{functions}}} // namespace functions"
        if turns and turns[0]["role"] == "system":
            separator = "\n\n" if tools else ""
            opening = f"{self.developer}# Instructions\n\n"
            return [system, opening, turns[0]["content"], f"{separator}{tools}{self.eosys}"]
        if tools:
            system += f"{self.developer}{tools}{self.eosys}"
        return [system]

    def _pieces(self, turns: Sequence[Turn], task: Task) -> list[str]:
        return super()._pieces(_with_names(turns), task)

    def piece(self, turn: Turn, task: Task, recent: bool = False) -> tuple[str, str, str]:
        role, text = turn["role"], turn["content"]
        begin, end = task.markers[role]
        if not task.strict:
            return begin, text, end
        if role == "tool":
            return begin, f"{turn.get('name', '')} to=assistant{_header('commentary')}{text}", end
        thought = turn.get("reasoning_content", "") if recent and role == "assistant" else ""
        calls = calls_of(turn)
        if not thought and not calls:
            return begin, text, end
        messages = [f"{_header('analysis')}{thought}{end}"] if thought else []
        if not calls:
            messages.append(f"{_header('final')}{text}{end}")
        elif text:
            messages.append(f"{_header('commentary')}{text}{end}")
        for name, arguments in calls:
            header = _header("commentary <|constrain|>json")
            messages.append(f" to=functions.{name}{header}{json_text(arguments)}{_CALL}")
        last = _CALL if calls else end
        return self.assistant, self.assistant.join(messages).removesuffix(last), last


def _header(channel: str) -> str:
    return f"<|channel|>{channel}<|message|>"


def _with_names(turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns with the name of the tool in each result of a call."""
    names: dict[Any, str] = {}
    last = ""
    result: list[Turn] = []
    for turn in turns:
        for call in turn.get("tool_calls", ()):
            last = names[call.get("id")] = call["function"]["name"]
        if turn["role"] == "tool" and not turn.get("name"):
            turn = turn.copy()
            turn["name"] = names.get(turn.get("tool_call_id"), last)
        result.append(turn)
    return result
