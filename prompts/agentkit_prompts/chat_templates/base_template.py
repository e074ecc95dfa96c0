"""Base class of the templates in the LMDeploy document: sampling defaults, and three methods to override."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeAlias, cast, get_args

from agentkit_prompts.chat_templates.chat_turns import (
    Messages,
    Tools,
    Turn,
    has_tool_traffic,
    no_messages,
    read_functions,
    read_prompt,
    read_turns,
)
from agentkit_prompts.chat_templates.dropped_content import ContentCheck, Conversation
from agentkit_prompts.chat_templates.guard.control_tokens import tokens_and_markers
from agentkit_prompts.chat_templates.protocol import TOOLS_IN_PROMPT, Capability
from agentkit_prompts.chat_templates.tool_calls.formats import format_problem
from agentkit_prompts.errors import ChatTemplateError, Problem, Problems
from agentkit_prompts.names import unknown_fields


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_text, value))


TokenCount: TypeAlias = int
CallFormat: TypeAlias = str

_TYPES: dict[str, Callable[[object], bool]] = {
    "None": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "Sequence[str]": _is_texts,
    "list[str]": _is_texts,
    "Mapping[str, str]": lambda value: isinstance(value, Mapping) and _is_texts([*value, *value.values()]),
    "Capability": lambda value: value in get_args(Capability),
    "TokenCount": lambda value: isinstance(value, int) and not isinstance(value, bool) and value > 0,
    "CallFormat": lambda value: not format_problem(value),
}
"""Type name in an annotation -> test of a field value. A field of another type contains text."""
_EXPECTED = {
    "None": "None",
    "bool": "True or False",
    "int": "a whole number",
    "float": "a number",
    "Sequence[str]": "a list of texts",
    "list[str]": "a list of texts",
    "Mapping[str, str]": "a mapping from texts to texts",
    "Capability": ", ".join(map(repr, get_args(Capability))),
    "TokenCount": "1 or more tokens",
}
"""Type name in an annotation -> the valid values, for errors."""
_OWN = "agentkit_prompts."
"""Start of the modules whose classes are not checked: their tests check them."""

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class BaseTemplate:
    """Chat template as in the LMDeploy document: a subclass defines the text of a prompt and of a conversation.

    Fields are class attributes with a type. A subclass can redefine them, and every field is a keyword of the
    constructor. The other packages call `render`, which calls `messages2prompt`.

    Raises:
        ChatTemplateError: A keyword is unknown, or a value has the wrong type; names all of them.
    """

    session_len: TokenCount | None = 2048
    """Maximum context tokens of the model; None if models with this template differ."""
    top_p: float | None = 0.8
    top_k: int | None = None
    temperature: float | None = 0.8
    repetition_penalty: float | None = 1.0
    capability: Capability | None = "chat"
    stop_words: Sequence[str] | None = None
    """Texts that end a reply."""
    tool_call_format: CallFormat | None = None
    """Format of the tool calls of the model; see `TOOL_CALL_FORMATS`. None for any format."""

    label = ""
    """File of the template, if any."""
    rewrites_text: ClassVar[bool] = True
    """True if `messages2prompt` can change the text of a message; the finished text is then checked, too."""
    marker_fields: ClassVar[tuple[str, ...]] = (
        *("system", "eosys", "user", "eoh", "assistant", "eoa", "separator", "tool", "eotool"),
    )
    """Names of the attributes with text around messages."""

    def __init_subclass__(cls) -> None:
        cls._check_overrides(BaseTemplate, ("render",))
        if not cls.__module__.startswith(_OWN):
            cls._check_attributes()

    @classmethod
    def _check_attributes(cls) -> None:
        """Check the class attributes that redefine fields; a property is a field whose value is not yet known."""
        kinds: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            if base.__module__.startswith(_OWN) and issubclass(base, BaseTemplate):
                kinds |= base.fields()
        values = {name: value for name, value in vars(cls).items() if name in kinds and not hasattr(value, "__get__")}
        check_template_fields(cls.__name__, values, kinds)

    @classmethod
    def _check_overrides(cls, base: type[BaseTemplate], names: Sequence[str]) -> None:
        """Refuse methods of this class that the other packages cannot call like the methods of `base`."""
        for name in names:
            check_parameters(vars(cls).get(name), getattr(base, name), f"{cls.__name__}.{name}")

    def __init__(self, **fields: Any) -> None:
        check_template_fields(type(self).__name__, fields, self.fields())
        for name, value in fields.items():
            setattr(self, name, value)

    @property
    def title(self) -> str:
        """Name of the template in errors: its file, or its class."""
        return self.label or type(self).__name__

    @classmethod
    def fields(cls) -> dict[str, str]:
        """Return the fields of this class and of its bases, each with its type."""
        kinds: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            kinds |= {name: str(kind) for name, kind in inspect.get_annotations(base).items()}
        return {name: kind for name, kind in kinds.items() if not kind.startswith("ClassVar")}

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Texts that only the template may write: stop words and message markers."""
        markers = [getattr(self, name, None) for name in self.marker_fields]
        return tokens_and_markers(self.stop_words or (), [marker for marker in markers if isinstance(marker, str)])

    @property
    def variables(self) -> frozenset[str] | None:
        """Names of the other keyword arguments that `render` reads; None if a subclass accepts any."""
        parameters = inspect.signature(self.messages2prompt).parameters.values()
        if not type(self).render.__module__.startswith("agentkit_prompts."):
            parameters = inspect.signature(self.render).parameters.values()
            if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
                return None
        names = {parameter.name for parameter in parameters if parameter.kind in _NAMED}
        return frozenset(names - {"messages", "tools", "add_generation_prompt"})

    def get_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """Return the text for one prompt of the user: unchanged if the model only completes text, else decorated.

        `sequence_start` is True for the first prompt of a conversation; a later prompt is sent to a server that has
        cached the earlier turns.
        """
        prompt = read_prompt(prompt, self.title)
        if self.capability == "completion":
            return prompt
        return self.decorate_prompt(prompt, sequence_start)

    def decorate_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """Return the prompt between the markers of the model. Subclasses override this method; the default returns the
        prompt.
        """
        return prompt

    def messages2prompt(self, messages: str | Messages, sequence_start: bool = True) -> str:
        """Return the text of a conversation for the model. Subclasses override this method; the default accepts one
        prompt as text.

        A model that only completes text has no roles: its input is the texts of a conversation, one per line.
        """
        if isinstance(messages, str):
            return self.get_prompt(messages, sequence_start)
        if self.capability == "completion":
            return "\n".join(turn["content"] for turn in read_turns(messages, self.title))
        raise ChatTemplateError(
            f"{self.title}: does not support a list of messages; override messages2prompt",
            template=self.title,
            name="messages2prompt",
        )

    def render(
        self,
        messages: Messages,
        tools: Tools | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """Return the result of `messages2prompt` for the conversation, passed as new plain dicts.

        Tools and other keywords are passed if `messages2prompt` has a parameter of that name; other keywords belong to
        other templates and are ignored. Without a parameter `add_generation_prompt`, the `assistant` marker at the end
        is removed.

        Raises:
            ChatTemplateError: The template has no place for a part of this conversation, or leaves a part out; names
                the reason.
        """
        title = self.title
        # As in the LMDeploy document, a subclass can accept any subset of these options.
        parameters = inspect.signature(self.messages2prompt).parameters
        turns = read_turns(messages, title)
        if not turns:
            raise no_messages(title)
        if "tools" not in parameters and (tools or any(map(has_tool_traffic, turns))):
            raise ChatTemplateError(
                f"{self.title}: its messages2prompt has no parameter `tools`, so it has no place for them",
                template=self.title,
                problems=[Problem("tools", "no parameter")],
            )
        functions = read_functions(tools, title) if tools else None
        options = {**kwargs, "tools": functions, "add_generation_prompt": add_generation_prompt}
        options = {key: value for key, value in options.items() if key in parameters}
        text = self._call_messages2prompt(turns, options)
        self._refuse_lost("its messages2prompt", self._lost(turns, options, text))
        if add_generation_prompt or "add_generation_prompt" in parameters:
            return text
        return self._without_opening(text, turns[-1])

    @cached_property
    def _content_check(self) -> ContentCheck:
        return ContentCheck()

    def _lost(self, turns: list[Turn], options: Mapping[str, Any], text: str) -> Problems:
        """Return the parts of the conversation that a text lacks."""

        def render_again(changed: Conversation) -> str:
            tools = {"tools": changed.tools} if "tools" in options else {}
            return self._call_messages2prompt(cast("list[Turn]", changed.messages), {**options, **tools})

        conversation = Conversation(cast("list[dict[str, Any]]", turns), options.get("tools"))
        variables = {name: value for name, value in options.items() if name != "tools"}
        return self._content_check.lost(conversation, text, render_again, variables)

    def _refuse_lost(self, subject: str, lost: Problems) -> None:
        if not lost:
            return
        advice = ""
        if any("tool" in problem.text for problem in lost):
            advice = f"; write them (calls are in `tool_calls` of a message), or {TOOLS_IN_PROMPT}"
        raise ChatTemplateError(
            f"{self.title}: {subject} drops {', '.join(map(str, lost))}{advice}",
            template=self.title,
            problems=lost,
        )

    def _call_messages2prompt(self, turns: list[Turn], options: Mapping[str, Any]) -> str:
        return self._text_of("messages2prompt", turns, lambda copies: self.messages2prompt(copies, **options))

    def _text_of(self, method: str, turns: Sequence[Turn], write: Callable[[list[Turn]], object]) -> str:
        """Return the text of a method of a custom class; each other result is a `ChatTemplateError`."""
        title = self.title
        try:
            # Copies, because a subclass can change its messages.
            text = write([{**turn} for turn in turns])
        except ChatTemplateError:
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise ChatTemplateError(
                f"{title}: {method} failed with {problem}; it received {len(turns)} messages", template=title
            ) from error
        if not isinstance(text, str):
            raise ChatTemplateError(f"{title}: {method} returned {type(text).__name__}, expected text", template=title)
        return text

    def _without_opening(self, text: str, last: Mapping[str, Any]) -> str:
        """Remove the marker after the conversation with which `messages2prompt` opens the reply."""
        opening = getattr(self, "assistant", "")
        # If the last message ends with the same text, the position of the marker is ambiguous.
        if not opening or not text.endswith(opening) or last["content"].endswith(opening):
            raise ChatTemplateError(
                f"{self.title}: cannot find the end of the conversation; add a parameter `add_generation_prompt` to "
                f"messages2prompt",
                template=self.title,
                name="add_generation_prompt",
            )
        return text.removesuffix(opening)


def check_parameters(method: object, base: Callable[..., Any], title: str) -> None:
    """Refuse a method of a class without the parameters of `base`, the method of another class; accept no method.

    Raises:
        ChatTemplateError: The parameters of the method differ.
    """
    if not inspect.isfunction(method):
        return
    expected = [each for each in inspect.signature(base).parameters.values() if each.kind is not each.VAR_KEYWORD][1:]
    required = [each for each in expected if each.default is each.empty]
    received = inspect.signature(method)
    try:
        received.bind(None, *expected)
        received.bind(None, *required)
        received.bind(None, **{each.name: each for each in expected})
    except TypeError:
        texts = [each.name if each in required else f"{each.name}={each.default}" for each in expected]
        raise ChatTemplateError(
            f"{title}: expected the parameters ({', '.join(texts)}), got ({', '.join([*received.parameters][1:])})",
            template=title.partition(".")[0],
            name=title.rpartition(".")[2],
        ) from None


def _wrong_types(given: Mapping[str, object], kinds: Mapping[str, str]) -> list[Problem]:
    return [
        Problem(name, _type_problem(value, kinds[name]))
        for name, value in given.items()
        if name in kinds and not _fits(value, kinds[name])
    ]


def _type_problem(value: object, kind: str) -> str:
    if "CallFormat" in kind:
        return format_problem(value)
    return f"expected {' or '.join(map(_expected, kind.split(' | ')))}, got {value!r:.80}"


def _expected(name: str) -> str:
    """Return the valid values of one alternative of an annotation; a type that is not in the table is text."""
    if name.startswith("Literal["):
        return name.removeprefix("Literal[").removesuffix("]").replace('"', "'")
    return _EXPECTED.get(name, "text")


def check_template_fields(
    title: str, given: Mapping[str, object], kinds: Mapping[str, str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Check the fields of a template.

    Args:
        title: Title of the fields in errors.
        given: Values by name.
        kinds: Annotations of the fields.
        elsewhere: Right place of misplaced fields, by name.

    Raises:
        ChatTemplateError: A field is unknown, or a value has the wrong type; names all of them.
    """
    unknown = unknown_fields(title, given, kinds, elsewhere or {})
    invalid = _wrong_types(given, kinds)
    if unknown or invalid:
        problems = [Problem(name, "unknown field") for name in given if name not in kinds]
        raise ChatTemplateError(
            f"{title}: {'; '.join([*unknown, *map(str, invalid)])}", template=title, problems=problems + invalid
        )


def _fits(value: object, kind: str) -> bool:
    """True if a value has the type in the annotation of a field."""
    # Annotations are text here, because of `from __future__ import annotations`.
    return any(_is_of(value, alternative) for alternative in kind.split(" | "))


def _is_of(value: object, name: str) -> bool:
    if name.startswith("Literal"):
        return isinstance(value, str) and repr(value) in name.replace('"', "'")
    return _TYPES.get(name, _is_text)(value)
