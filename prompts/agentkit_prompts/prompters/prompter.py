"""`Prompter`: an instruction with slots for hosted and local models, after the LazyLLM document.

A prompter is a preset: its `layers` compose the messages, its `chat_template` writes the same messages as text.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, ClassVar, Literal, Self, TypeAlias, overload

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate
from agentkit_prompts.chat_templates.template_finder import find_chat_template
from agentkit_prompts.composition.compose import compose
from agentkit_prompts.composition.plan import plan_of
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.frozen import thawed
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_prompts.errors import ChatTemplateError, Problem, Problems, PrompterError, raise_problems
from agentkit_prompts.names import nearest
from agentkit_prompts.prompters.history import History, Tools, read_history, read_tools, tool_spec
from agentkit_prompts.prompters.prompter_chat_template import TOKENS, PrompterLayout, check_layout
from agentkit_prompts.prompters.slots import SlotPrompt, slots_of
from agentkit_prompts.tree.layers import Layers

SlotValues: TypeAlias = Mapping[str, Any] | UserInput | str | float | None
"""Input of a call: text, or a mapping of the names of slots to their values; numbers become text."""
PreHook: TypeAlias = Callable[[Any, Any, Any, Any], tuple[Any, Any, Any, Any]]
"""Function that replaces (input, history, tools, label) before they are read."""

_LOG = logging.getLogger("agentkit.prompters")
LAZYLLM_SYSTEM = "You are an AI-Agent developed by LazyLLM."
"""Line before every instruction in LazyLLM."""
_MARKERS = {
    **{"sos": "system", "eos": "eosys", "soh": "user", "eoh": "eoh"},
    **{"soa": "assistant", "eoa": "eoa", "soe": "tool", "eoe": "eotool"},
}
"""Field of a role-marker template, by the name of the token that has the same meaning."""
_OPTIONS = ("instruction", "extra_keys", "tools", "history", "pre_hook", "show", "system")
_EXTRA = "Here are some extra messages you can referred to:\n\n"


class Prompter:
    """Base of all prompters. A subclass sets `layout`, and can override `instruct`.

    Args:
        instruction: The instruction, with slots such as `{context}`. A str is text of the system message; a dict can
            have text for the system message under `system`, and text before the user's input under `user`.
        extra_keys: Additional slots, each shown under its name after the instruction.
        tools: Tools of every call; a call must then not pass tools.
        history: Turns before the history of every call.
        pre_hook: Function that replaces (input, history, tools, label) of every call.
        show: True to log the result of every call to the logger `agentkit.prompters`.
        system: Line before the instruction that introduces the model; None uses the line of the class.
        tokens: Tokens of the model by name; see `for_model`.

    Attributes:
        slots: Names of all slots, in the order of the text.
        layers: Layers that compose the messages.
        chat_template: Chat template that writes the same messages as text, for a local model.

    Raises:
        PrompterError: The prompter has no place for some arguments; names all of them.
    """

    layout: ClassVar[str] = ""
    """The text for a local model, with places `{system}`, `{instruction}`, `{tools}`, `{history}`, `{user}`, `{input}`
    and tokens such as `{soh}`. Arguments without a place are rejected."""
    split: ClassVar[str] = ""
    """Part of the layout after which the reply of the model starts, such as `{soa}`."""
    system: str | None = None
    """Line before the instruction that introduces the model; None omits the line. LazyLLM uses `LAZYLLM_SYSTEM`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.layout:
            check_layout(cls.__name__, cls.layout, cls.split)

    def __init__(
        self,
        instruction: str | Mapping[str, str] | None = None,
        extra_keys: str | Sequence[str] | None = None,
        *,
        tools: Tools | None = None,
        history: History | None = None,
        pre_hook: PreHook | None = None,
        show: bool = False,
        system: str | None = None,
        **tokens: str | None,
    ) -> None:
        if not self.layout:
            raise PrompterError(
                f"{type(self).__name__} has no layout: use a subclass that sets `layout`", name="layout"
            )
        system_text, user_text = _texts_of_instruction(instruction)
        extra = "".join(f"### {key}:\n{{{key}}}\n\n" for key in _checked_keys(extra_keys))
        self._texts = self.instruct(system_text, user_text, extra and _EXTRA + extra)
        self.tools = tuple(read_tools(tools))
        self.history = tuple(read_history(history))
        self._pre_hook = pre_hook
        self._show = show
        self.slots = slots_of(*self._texts)
        options = _checked_tokens(type(self).__name__, system, tokens, _OPTIONS)
        self._set_up({**dict.fromkeys(TOKENS, ""), **options}, self.system if system is None else system)
        self._require_system_place()
        if self.history:
            self._refuse_history()

    def instruct(self, system: str, user: str | None, extra: str) -> tuple[str, str]:
        """Return the text of the system message and the text before the user's input; both can have slots.

        Args:
            system: The instruction, or its system part.
            user: User part of the instruction; None if the instruction is a str.
            extra: Block of text with the slots of the `extra_keys`; empty without such keys.
        """
        if user is None:
            if extra:
                return f"{system}\n\n{extra}", ""
            return system, ""
        return system, user + extra

    def _set_up(self, tokens: Mapping[str, str], system: str | None) -> None:
        layout = self.layout
        if system is None and "{instruction}" in layout:
            # Remove the line of the system text together with its line break.
            layout = layout.replace("{system}\n", "").replace("{system}", "")
        places = set(slots_of(layout))
        self.system = system
        name, user = type(self).__name__, self._texts[1]
        self.layers = Layers(
            system=self._system_prompts(places),
            input=SlotPrompt.of(user, self.slots, other_input="append" if "input" in places else "reject", name=name),
            conversation="history" in places,
            empty_messages=True,
        )
        self._skip_volatility_warning()
        self.chat_template = PrompterLayout(layout, self.split, system or "", tokens, self._texts)

    def _skip_volatility_warning(self) -> None:
        # The layout defines the order of the prompts, so the user cannot follow the advice of the warning.
        plan_of(self.layers).is_checked = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        # The plan is not copied with the layers, so the copy has to skip the warning again.
        vars(self).update(state)
        self._skip_volatility_warning()

    def _system_prompts(self, places: Set[str]) -> tuple[SlotPrompt, ...]:
        """Return the prompt of the system message; empty if the layout has no place for it."""
        instruction = self._texts[0]
        first_line = None
        if "system" in places:
            first_line = self.system or ""
        elif not instruction or "instruction" not in places:
            return ()
        return (SlotPrompt.of(instruction, self.slots, first_line=first_line, name=type(self).__name__),)

    def for_model(self, model: str | None = None, /, *, system: str | None = None, **tokens: str | None) -> Self:
        """Return the prompter with the system text and the tokens of a model.

        Args:
            model: A model, or the name of a registered chat template, whose markers become the tokens.
            system: Line that introduces the model; None keeps the current line.
            tokens: `sos` and `eos` (start and end of a system message), `soh` and `eoh` (human), `soa` and `eoa`
                (assistant), `soe` and `eoe` (environment: a tool result); `tool_start_token`, `tool_args_token`,
                `tool_end_token`. None keeps the current token.

        Raises:
            PrompterError: Tokens are unknown or not text, or the model is unknown; names all invalid tokens.
        """
        new_tokens = _checked_tokens("for_model", system, tokens, ("system",))
        other = copy.copy(self)
        merged = {**self.chat_template.tokens, **_tokens_of_model(model), **new_tokens}
        other._set_up(merged, self.system if system is None else system)
        return other

    def context(
        self, input: SlotValues = None, history: History | None = None, tools: Tools | None = None
    ) -> PromptContext:
        """Return the context of one call, for `layers`.

        Raises:
            PrompterError: Names all missing and unexpected slots, or the problems of the history or the tools.
        """
        return self._read_call(input, history, tools, None)[0]

    @overload
    def generate_prompt(
        self,
        input: SlotValues = None,
        history: History | None = None,
        tools: Tools | None = None,
        label: str | None = None,
        *,
        show: bool = False,
        return_dict: Literal[False] = False,
    ) -> str: ...
    @overload
    def generate_prompt(
        self,
        input: SlotValues = None,
        history: History | None = None,
        tools: Tools | None = None,
        label: str | None = None,
        *,
        show: bool = False,
        return_dict: Literal[True],
    ) -> dict[str, Any]: ...
    def generate_prompt(
        self,
        input: SlotValues = None,
        history: History | None = None,
        tools: Tools | None = None,
        label: str | None = None,
        *,
        show: bool = False,
        return_dict: bool = False,
    ) -> str | dict[str, Any]:
        """Return the prompt of one call: text for a local model, or with `return_dict` a request to a hosted model.

        Control tokens in the input are not broken; use `Composition.to_text` for untrusted input.

        Args:
            input: Text of the user, or a dict of the values of slots. One more key of the dict, with any name, can
                contain text of the user.
            history: `[question, answer]` pairs or message dicts.
            tools: Tool specs of a chat request.
            label: Reply to learn, appended to the text; ignored for a request.
            show: True to log the result, also if the prompter has `show=False`.
            return_dict: True to return `{"messages": [...], "tools": [...]}`; `tools` is missing if empty.

        Raises:
            PrompterError: Names all missing and unexpected slots, or the problems of the history or the tools.
        """
        ctx, call_tools, label = self._read_call(input, history, tools, label)
        composition = compose(self.layers, ctx)
        prompt: str | dict[str, Any]
        if return_dict:
            prompt = {"messages": thawed(composition.to_openai()["messages"])}
            if call_tools:
                prompt["tools"] = copy.deepcopy(call_tools)
        else:
            prompt = self.chat_template.render(composition.messages, call_tools) + (label or "")
        self._log(prompt, show)
        return prompt

    def _log(self, prompt: object, show: bool) -> None:
        if show or self._show:
            _LOG.info("%s: %s", type(self).__name__, prompt)

    def get_response(self, output: str, input: str | None = None) -> str:
        """Return the reply in the output of a local model.

        The output of some local models starts with `input`, the prompt; the reply is the text after it. Otherwise the
        reply is the text after the last `split`.
        """
        if input and output.startswith(input):
            return output[len(input) :]
        if not self.chat_template.split:
            return output
        return output.rsplit(self.chat_template.split, 1)[-1]

    def _read_call(
        self, values: SlotValues, history: Any, tools: Any, label: Any
    ) -> tuple[PromptContext, list[Mapping[str, Any]], str | None]:
        if self._pre_hook is not None:
            values, history, tools, label = _checked_result(self._pre_hook(values, history, tools, label))
        if not isinstance(label, str | None):
            raise PrompterError(f"label: expected text, got {type(label).__name__}", name="label")
        call_tools = self._tools_of_call(tools)
        earlier = read_history(history)
        if earlier:
            self._refuse_history()
        ctx = PromptContext(
            user_input=self._user_input(values),
            conversation=Conversation([*self.history, *earlier]),
            tools=tuple(map(tool_spec, call_tools)),
        )
        return ctx, call_tools, label

    def _tools_of_call(self, tools: Any) -> list[Mapping[str, Any]]:
        """Return the tools of a call; without them, the tools of the prompter."""
        call_tools = read_tools(tools)
        if call_tools and self.tools:
            raise PrompterError(
                "tools are already set at construction: pass them there or with the call, not both", name="tools"
            )
        return call_tools or list(self.tools)

    def _require_system_place(self) -> None:
        if self._texts[0] and not self.layers.system:
            reason = f"{type(self).__name__} has no place for a system instruction"
            raise PrompterError(reason, name="instruction")

    def _refuse_history(self) -> None:
        if not self.layers.conversation:
            raise PrompterError(f"{type(self).__name__} has no place for history: use ChatPrompter", name="history")

    def _user_input(self, value: Any) -> UserInput:
        if isinstance(value, UserInput):
            return value
        if isinstance(value, Mapping):
            return self._input_of_dict(value)
        if not isinstance(value, str | int | float | None):
            kind = type(value).__name__
            raise PrompterError(f"input: expected text or a dict of slots, got {kind}", name="input", value=kind)
        # Text fills the only slot. With several slots, only a dict can assign values to them.
        if len(self.slots) > 1 or (self.slots and value is None):
            raise self._needs_dict(value)
        return UserInput(_text(value))

    def _needs_dict(self, value: object) -> PrompterError:
        slots = ", ".join(map(repr, self.slots))
        hint = ""
        if value:
            hint = "; text can fill one slot only"
        return PrompterError(f"input: expected a dict with {slots}{hint}", name=", ".join(self.slots))

    def _input_of_dict(self, values: Mapping[str, Any]) -> UserInput:
        """Return the input in a dict: the values of all slots, and at most one other text, the text of the user."""
        shows_input = self.layers.input[0].other_input == "append"  # type: ignore[attr-defined]
        problems = [Problem(slot, "missing") for slot in self.slots if slot not in values]
        other_keys = [key for key in values if key not in self.slots]
        advice = ""
        has_input = len(other_keys) == 1 and not problems and (shows_input or not values[other_keys[0]])
        if not has_input:
            problems += self._unexpected(other_keys)
            if other_keys and shows_input:
                advice = "; one key that is not a slot can contain text of the user"
            elif other_keys:
                advice = f"; {type(self).__name__} shows text of the user only in slots"
        problems += _problems_of_values(values)
        raise_problems(PrompterError, "input", problems, advice=advice)
        # Values are converted after the checks, because `str` of a value of another type can fail.
        slots = {slot: _text(values[slot]) for slot in self.slots}
        text = ""
        if has_input:
            text = _text(values[other_keys[0]])
        return UserInput(text, additional_kwargs=slots)

    def _unexpected(self, keys: Sequence[Any]) -> Problems:
        advice = "; the prompter has no slots"
        return [Problem(str(key), f"unexpected{nearest(str(key), self.slots) or advice}") for key in keys]


def _problems_of_values(values: Mapping[str, Any]) -> Problems:
    invalid = {str(key): type(value) for key, value in values.items() if not isinstance(value, str | int | float)}
    return [Problem(key, f"expected text, got {kind.__name__}") for key, kind in invalid.items()]


def _texts_of_instruction(instruction: Any) -> tuple[str, str | None]:
    """Return the system part of an instruction and, for a dict, its user part."""
    if isinstance(instruction, str | None):
        return instruction or "", None
    if not isinstance(instruction, Mapping):
        reason = f"instruction: expected a str or a dict, got {type(instruction).__name__}"
        raise PrompterError(reason, name="instruction")
    parts = {key: instruction.get(key, "") for key in ("system", "user")}
    invalid = [repr(key) for key, part in parts.items() if not isinstance(part, str)]
    if invalid:
        raise PrompterError(f"instruction: expected text for {', '.join(invalid)}", name="instruction")
    _warn_of_unused(instruction, parts)
    return parts["system"], parts["user"]


def _warn_of_unused(instruction: Mapping[str, str], parts: Mapping[str, str]) -> None:
    unused = [repr(str(key)) for key in instruction if key not in parts]
    if unused:
        warn(f"instruction: only 'system' and 'user' are used; ignored: {', '.join(unused)}", UserWarning)


def _checked_result(replaced: Any) -> Sequence[Any]:
    if not isinstance(replaced, tuple | list) or len(replaced) != 4:
        raise PrompterError("pre_hook: it must return (input, history, tools, label)", name="pre_hook")
    return replaced


def _checked_tokens(where: str, system: object, tokens: Mapping[str, object], options: Sequence[str]) -> dict[str, Any]:
    """Return the tokens that are not None.

    Args:
        where: Name of the class or method in errors.
        system: Value of the argument `system`, which is checked, too.
        tokens: Tokens by name.
        options: Names of other valid arguments, which an error can suggest.

    Raises:
        PrompterError: Tokens are unknown or not text; names all of them.
    """
    valid = (*TOKENS, *options)
    problems: Problems = []
    for name, value in {**tokens, "system": system}.items():
        if name not in valid:
            problems.append(Problem(name, f"unknown token{nearest(name, valid)}"))
        elif not isinstance(value, str | None):
            problems.append(Problem(name, "must be text"))
    raise_problems(PrompterError, where, problems)
    return {name: token for name, token in tokens.items() if token is not None}


def _tokens_of_model(model: str | None) -> dict[str, str]:
    """Return the tokens of a model, which are the markers of its chat template; empty without a model."""
    if model is None:
        return {}
    try:
        template = find_chat_template(model)
    except ChatTemplateError as error:
        raise PrompterError(f"for_model: {error}", name="model", value=str(model)) from error
    if not isinstance(template, RoleMarkerTemplate) or template.capability == "completion":
        raise PrompterError(
            f"for_model: the chat template of {model!r} has no markers around roles; pass the tokens by name, or pass "
            f"the template to CompletionModel",
            name="model",
            value=model,
        )
    return {token: getattr(template, field) for token, field in _MARKERS.items()}


def _checked_keys(keys: Any) -> tuple[str, ...]:
    if not keys:
        return ()
    if isinstance(keys, str):
        keys = (keys,)
    if not isinstance(keys, list | tuple):
        reason = f"extra_keys: expected a str or a list of str, got {type(keys).__name__}"
        raise PrompterError(reason, name="extra_keys")
    invalid = [repr(key) for key in keys if not _is_slot(key)]
    if invalid:
        reason = f"extra_keys: a key is one word, letters, digits and _; not {', '.join(invalid)}"
        raise PrompterError(reason, name="extra_keys")
    return tuple(dict.fromkeys(keys))


def _is_slot(key: object) -> bool:
    return isinstance(key, str) and slots_of(f"{{{key}}}") == (key,)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return str(value)
