"""Role-marker templates: a marker before and after each message, as in LMDeploy.

`messages2prompt` writes the same text as LMDeploy, also if it leaves content out. `render` never leaves content out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, cast

from agentkit_prompts.chat_templates.base_template import BaseTemplate, TokenCount
from agentkit_prompts.chat_templates.chat_turns import (
    Messages,
    Tools,
    Turn,
    has_tool_traffic,
    json_text,
    last_question,
    no_messages,
    plain_turns,
    read_functions,
    read_prompt,
    read_turns,
    runs_of_results,
)
from agentkit_prompts.chat_templates.dropped_content import Conversation
from agentkit_prompts.chat_templates.guard.control_tokens import is_at_line_start, tokens_and_markers
from agentkit_prompts.chat_templates.protocol import TOOLS_IN_PROMPT
from agentkit_prompts.errors import ChatTemplateError, Problem, Problems
from agentkit_prompts.limits import MAX_LISTED

_PLAIN_ROLES = frozenset(("system", "user", "assistant"))
"""Roles of every template."""
_HINT = "pass the folder or file of the model, because its Jinja template may have one"

_WRITERS = frozenset(("piece", "write", "head", "render", "messages2prompt"))
_OWN = "agentkit_prompts.chat_templates."


class Task(NamedTuple):
    """Inputs of a template except the messages."""

    markers: Mapping[str, tuple[str, str]]
    """The markers of the template, by role."""
    tools: list[dict[str, Any]] | None = None
    tool_texts: Sequence[str] = ()
    """Each tool as JSON."""
    sequence_start: bool = True
    add_generation_prompt: bool = True
    enable_thinking: bool | None = None
    strict: bool = True
    """True to write all content; False to leave out the same content as LMDeploy."""
    is_plain: bool = False
    """True if each message is text with a role of every template."""


class RoleMarkerTemplate(BaseTemplate):
    """Template defined by fields only. The built-in models are subclasses created from data rows.

    A message is written as the marker of its role, its text, and the end of its role: `system` and `eosys`, `user`
    and `eoh`, `assistant` and `eoa` followed by `separator`, `tool` and `eotool`. If a conversation has no system
    message, it starts with `meta_instruction` as a system message, if not None. If the last message is an assistant
    message, it is left open and the model continues it.
    """

    session_len: TokenCount | None = None
    system: str = ""
    meta_instruction: str | None = ""
    """Default system message; None for no system message, "" for an empty system message."""
    eosys: str = ""
    user: str = ""
    eoh: str = ""
    assistant: str = ""
    eoa: str = ""
    separator: str = ""
    """Text between an assistant message and the next message."""
    tool: str = ""
    eotool: str = ""
    bos: str = ""
    """Text that opens a sequence."""
    bos_always: bool = False
    """True if a list of messages starts with `bos` even if it does not open a sequence."""
    trim_opening: Literal["", "chat", "always"] = ""
    """Capabilities for which `get_prompt` removes the space at the end of the marker that opens the reply: `chat`, or
    any. In a list of messages the space is always removed."""
    reply_start: str = ""
    """Text after the marker that opens the reply to a list of messages, such as `<think>`."""
    reply_start_when: Literal["always", "sequence_start", "thinking", "not thinking"] = "always"
    special_tokens: Sequence[str] = ()
    """Special tokens of the model that are neither stop words nor markers, such as bos and eos."""

    roles: ClassVar[tuple[str, ...]] = ("system", "user", "assistant", "tool")
    writes_tools: ClassVar[bool] = False
    """True if the template has a place for tools and tool calls."""
    leaves_open: ClassVar[bool] = True
    """True if an assistant message at the end is left open, so that the model continues it."""
    code_tokens: ClassVar[tuple[str, ...]] = ()
    """Control tokens that are not in other fields."""
    model_tokens: ClassVar[tuple[str, ...]] = ()
    """Special tokens of the tokenizers; a token without its end means all tokens with this start."""
    signs: ClassVar[tuple[str, ...] | None] = ()
    """Texts with a special meaning in a message: a message without them is its text between markers. None if unknown,
    as for a custom class with its own `piece`."""

    is_custom: ClassVar[bool] = False
    """True if a custom class writes the text; `render` then checks that the text contains the whole conversation."""
    rewrites_text: ClassVar[bool] = False
    """True if the template can change the text of a message, as a subclass with custom methods can."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._check_overrides(RoleMarkerTemplate, ("head", "piece", "write"))
        # A custom class with one of these methods can change texts, unless it sets `rewrites_text`.
        if not _WRITERS.isdisjoint(vars(cls)) and not cls.__module__.startswith(_OWN):
            cls.rewrites_text = "rewrites_text" not in vars(cls) or cls.rewrites_text
            cls.is_custom = True
        if "piece" in vars(cls) and "signs" not in vars(cls):
            cls.signs = None

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Texts that only the template may write: stop words, special tokens, and message markers."""
        tokens = [*(self.stop_words or ()), self.bos, *self.special_tokens, *self.code_tokens, *self.model_tokens]
        return tokens_and_markers(tokens, [getattr(self, name) for name in (*self.marker_fields, "bos", "reply_start")])

    @property
    def inline_markers(self) -> tuple[str, ...]:
        """The markers of words that are inside a line, because the text before them does not end a line."""
        pairs = ((self.eosys, self.user), (self.eoh, self.assistant), (self.eoa + self.separator, self.user))
        texts = [(f".{end}{marker}", marker.strip()) for end, marker in pairs]
        return tuple([word for text, word in texts if word and not is_at_line_start(text[: text.rindex(word)])])

    @property
    def variables(self) -> frozenset[str] | None:
        names = super().variables
        if names is None or self._reads_thinking:
            return names
        return names - {"enable_thinking"}

    @property
    def _reads_thinking(self) -> bool:
        # Each method of a custom class can read the variable.
        if not type(self).__module__.startswith(_OWN):
            return True
        return self.capability in (None, "chat") and self.reply_start_when in ("thinking", "not thinking")

    def get_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """Return the text for one prompt of the user: unchanged if the model only completes text, else decorated."""
        prompt = read_prompt(prompt, self.title)
        if self.capability != "completion":
            return self.decorate_prompt(prompt, sequence_start)
        return self.bos + prompt if sequence_start else prompt

    def decorate_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """Return the prompt as a user message, followed by the marker that opens the reply.

        If it opens a sequence, the system message precedes it, otherwise the separator.
        """
        opening = self.assistant
        if self.trim_opening == "always" or (self.trim_opening == "chat" and self.capability == "chat"):
            opening = opening.rstrip()
        turn = f"{self.user}{prompt}{self.eoh}{opening}"
        if not sequence_start:
            return f"{self.separator}{turn}"
        if self.meta_instruction is None:
            return f"{self.bos}{turn}"
        return f"{self.bos}{self.system}{self.meta_instruction}{self.eosys}{turn}"

    def messages2prompt(
        self,
        messages: str | Messages,
        sequence_start: bool = True,
        tools: Tools | None = None,
        enable_thinking: bool | None = None,
        **kwargs: Any,
    ) -> str:
        """Return the text of a conversation, byte for byte equal to the text of LMDeploy.

        This text leaves out tools if `writes_tools` is False, and all content parts after the first text. `render`
        writes all content or raises.

        Raises:
            ChatTemplateError: A role is unknown, or a message cannot be read.
        """
        if isinstance(messages, str):
            return self.get_prompt(messages, sequence_start)
        name = self.title
        turns = plain_turns(messages, self.roles)
        if turns is None:
            turns = read_turns(messages, name, self.roles, first_text=True)
        task = self.task(tools, sequence_start=sequence_start, enable_thinking=enable_thinking, strict=False)
        return self.write(turns, task)

    def render(
        self,
        messages: Messages,
        tools: Tools | None = None,
        add_generation_prompt: bool = True,
        sequence_start: bool = True,
        enable_thinking: bool | None = None,
        **kwargs: Any,
    ) -> str:
        """Return the text of the conversation; with `add_generation_prompt` it ends with the opening of the reply.

        Without it the text ends with the last message. `sequence_start` is True if the messages open a
        sequence. Unknown keywords are ignored: they belong to other templates.

        Raises:
            ChatTemplateError: The template cannot represent a message or a tool; names all of them.
        """
        # The subclass overrides `messages2prompt`.
        if type(self).messages2prompt is not RoleMarkerTemplate.messages2prompt:
            options = {"sequence_start": sequence_start, "enable_thinking": enable_thinking}
            return super().render(messages, tools, add_generation_prompt, **options, **kwargs)
        name = self.title
        turns = plain_turns(messages, _PLAIN_ROLES)
        if self.capability not in (None, "chat"):
            return self._undecorated(read_turns(messages, name, self.roles), tools, sequence_start)
        task = self.task(
            tools or None,
            add_generation_prompt=add_generation_prompt,
            sequence_start=sequence_start,
            enable_thinking=enable_thinking,
            is_plain=turns is not None,
        )
        if turns is None:
            turns = read_turns(messages, name, self.roles)
        if not turns:
            raise no_messages(name)
        # Plain messages have no calls and no results.
        if task.tools or not task.is_plain:
            self._check_places(turns, task)
        if not self.is_custom:
            return self.write(turns, task)
        self._refuse_lost("the class", self.lost(turns, task))
        return self._written(turns, task)

    def lost(self, turns: list[Turn], task: Task) -> Problems:
        """Return the contents, tools and tool calls that a custom class leaves out."""
        if not self.is_custom:
            return []

        def write(changed: Conversation) -> str:
            tools = list(changed.tools or ())
            other = task._replace(tools=tools or None, tool_texts=[json_text(tool) for tool in tools])
            return self._written(cast("list[Turn]", changed.messages), other)

        conversation = Conversation(cast("list[dict[str, Any]]", turns), task.tools)
        options = task._replace(tools=None, tool_texts=())
        return self._content_check.lost(conversation, write(conversation), write, options)

    def _written(self, turns: list[Turn], task: Task) -> str:
        return self._text_of("write", turns, lambda copies: self.write(copies, task))

    def _undecorated(self, turns: list[Turn], tools: Tools | None, sequence_start: bool) -> str:
        """Return the texts of messages without roles, one per line, for a model that only completes text."""
        name = self.title
        if not turns:
            raise no_messages(name)
        self._check_places(turns, self.task(tools or None))
        if tools or any(map(has_tool_traffic, turns)):
            raise ChatTemplateError(
                f"{name}: with the capability {self.capability!r} it has no place for tools",
                template=name,
                problems=[Problem("tools", "no place")],
            )
        if self.capability != "completion" and len(turns) > 1:
            raise ChatTemplateError(
                f"{name}: with the capability {self.capability!r} it accepts one prompt, got {len(turns)} messages",
                template=name,
                problems=[Problem("messages", f"expected 1, got {len(turns)}")],
            )
        return self.get_prompt("\n".join(turn["content"] for turn in turns), sequence_start)

    def task(self, tools: Tools | None = None, **asked: Any) -> Task:
        """Return the inputs of the template except the messages: the markers, the tools, and fields by name."""
        if tools is None:
            return Task(self.markers(), **asked)
        functions = read_functions(tools, self.title)
        return Task(self.markers(), functions, [json_text(function) for function in functions], **asked)

    def missing_places(self, turns: Sequence[Turn], task: Task) -> list[str]:
        """Return the places of tools, tool calls and tool results that the template cannot write."""
        if self.writes_tools:
            return []
        places: list[str] = []
        if task.tools:
            places.append("tools")
        places += [f"messages[{index}].tool_calls" for index, turn in enumerate(turns) if "tool_calls" in turn]
        if not self.has_results:
            places += [f"messages[{index}]" for index, turn in enumerate(turns) if turn["role"] == "tool"]
        return places

    def _check_places(self, turns: Sequence[Turn], task: Task) -> None:
        places = self.missing_places(turns, task)
        if not places:
            return
        listed = ", ".join(places[:MAX_LISTED])
        if len(places) > MAX_LISTED:
            listed = f"{listed} and {len(places) - MAX_LISTED} more"
        raise ChatTemplateError(
            f"{self.title}: has no place for tools, tool calls or results (at {listed}); {_HINT}, or {TOOLS_IN_PROMPT}",
            template=self.title,
            problems=[Problem(place, "no place") for place in places],
        )

    @property
    def has_results(self) -> bool:
        """True if the template has markers for results of tools."""
        return bool(self.tool or self.eotool)

    @property
    def is_message_by_message(self) -> bool:
        """True if `render` writes each message separately with `piece`, and does not change texts."""
        own, kind = RoleMarkerTemplate, type(self)
        if self.rewrites_text or self.capability not in (None, "chat"):
            return False
        return kind.render is own.render and kind.messages2prompt is own.messages2prompt and kind.write is own.write

    def markers(self) -> dict[str, tuple[str, str]]:
        """Return the texts before and after a message, by role; other forms of a role have the key `ROLE FORM`."""
        return {
            "system": (self.system, self.eosys),
            "user": (self.user, self.eoh),
            "assistant": (self.assistant, self.eoa + self.separator),
            "tool": (self.tool, self.eotool),
        }

    def results(self) -> tuple[str, str]:
        """Return the texts before and after neighbouring tool messages, outside their markers."""
        return "", ""

    def opening(self, task: Task) -> str:
        """Return the text that opens a sequence, or an empty text."""
        return self.bos if task.sequence_start or self.bos_always else ""

    def head(self, turns: Sequence[Turn], task: Task) -> list[str]:
        """Return the text before all other messages: one piece, then three for each system message in it.

        The first three are the default system message, or the system message at the start.
        """
        bos = self.opening(task)
        if turns and turns[0]["role"] == "system":
            return [bos, *self.piece(turns[0], task)]
        if self.meta_instruction is None or not task.sequence_start or not turns:
            return [bos]
        if not self.meta_instruction:
            return [f"{bos}{self.system}{self.eosys}"]
        return [bos, self.system, self.meta_instruction, self.eosys]

    def piece(self, turn: Turn, task: Task, recent: bool = False) -> tuple[str, str, str]:
        """Return a message in three pieces: the text before its content, the content, and the text after it.

        It must not read the tools of the task. The texts around the content are a pair of `markers`.

        Args:
            turn: The message.
            task: Inputs except the messages.
            recent: True if no user message follows.
        """
        begin, end = task.markers[turn["role"]]
        return begin, turn["content"], end

    def write(self, turns: list[Turn], task: Task) -> str:
        """Return the text of the turns."""
        pieces = self.head(turns, task)
        first = len(pieces)
        leads = bool(turns) and turns[0]["role"] == "system"
        rest = turns[leads:]
        pieces += self._pieces(rest, task)
        if task.strict:
            _set_apart(pieces)
        if not task.is_plain:
            self._enclose_results(pieces, first, rest)
        if self.leaves_open and turns and turns[-1]["role"] == "assistant":
            pieces.append(self._continuation(task, pieces.pop()))
        elif task.add_generation_prompt:
            pieces.append(self.ending(task))
        return "".join(pieces)

    def _pieces(self, turns: Sequence[Turn], task: Task) -> list[str]:
        """Return three pieces for each turn."""
        pieces: list[str] = []
        if task.is_plain and self._is_plain(turns):
            markers = task.markers
            for turn in turns:
                begin, end = markers[turn["role"]]
                pieces += (begin, turn["content"], end)
            return pieces
        question = last_question(turns)
        for at, turn in enumerate(turns):
            pieces += self.piece(turn, task, at > question)
        return pieces

    def _enclose_results(self, pieces: list[str], first: int, turns: Sequence[Turn]) -> None:
        """Add the texts around neighbouring results; the pieces of `turns` start at index `first`."""
        opening, closing = self.results()
        if not opening and not closing:
            return
        for start, last in runs_of_results([turn["role"] for turn in turns]):
            pieces[first + 3 * start] = opening + pieces[first + 3 * start]
            pieces[first + 3 * last + 2] += closing

    def _continuation(self, task: Task, end: str) -> str:
        """Return the text after a reply that the model continues, instead of the `end` of the reply."""
        if not task.add_generation_prompt:
            # The separator belongs to the next turn.
            return end.removesuffix(self.separator)
        if not end and not task.strict:
            return self.ending(task)
        # LMDeploy also opens thinking here, if the template opens thinking at the start of a sequence.
        if not task.strict and self.reply_start_when == "sequence_start":
            return self._reply_start(task)
        return ""

    def _is_plain(self, turns: Sequence[Turn]) -> bool:
        if not self.signs:
            return self.signs is not None
        text = "\0".join([turn["content"] for turn in turns])
        return not any(sign in text for sign in self.signs)

    def ending(self, task: Task) -> str:
        """Return the text that opens the reply."""
        opening = self.assistant
        if self.trim_opening:
            opening = opening.rstrip()
        return opening + self._reply_start(task)

    def _reply_start(self, task: Task) -> str:
        thinks = task.enable_thinking is not False
        conditions = {
            "always": True,
            "sequence_start": task.sequence_start,
            "thinking": thinks,
            "not thinking": not thinks,
        }
        return self.reply_start if conditions[self.reply_start_when] else ""


def _set_apart(pieces: list[str]) -> None:
    """Put a line break between two messages that have no marker between them.

    `pieces` contains one piece before all messages, then three for each message.
    """
    # Every message starts with a marker, or every message ends with a marker.
    if all(pieces[1::3]) or all(pieces[3::3]):
        return
    for index in range(3, len(pieces) - 1, 3):
        if not pieces[index] and not pieces[index + 1]:
            pieces[index] = "\n"
