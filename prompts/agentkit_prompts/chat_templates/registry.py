"""Registry of chat templates, by model name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import takewhile
from typing import NamedTuple, TypeAlias, TypeVar

from agentkit_prompts.chat_templates.model_name_words import has_only_known, of_another, other_words, parts_of
from agentkit_prompts.chat_templates.protocol import ChatTemplate
from agentkit_prompts.errors import ChatTemplateError
from agentkit_prompts.names import nearest, similar

TemplateMaker: TypeAlias = Callable[..., ChatTemplate]
"""Class or function that creates a template; its keywords override fields."""

Maker = TypeVar("Maker", bound=Callable[..., object])


class Fit(NamedTuple):
    """A template that fits a part of the name of a model."""

    name: str
    """Name of the template."""
    other_words: list[str]
    """Words of the name that can belong to another model; empty if the template fits."""


class ChatTemplateRegistry:
    """Template classes and functions by name.

    Args:
        load: Function that returns the initial templates and their patterns of model names; called at the first use.
    """

    def __init__(
        self, load: Callable[[], tuple[Mapping[str, TemplateMaker], Mapping[str, re.Pattern[str]]]] | None = None
    ) -> None:
        self._load = load
        self._makers: dict[str, TemplateMaker] = {}
        self._matches: dict[str, re.Pattern[str]] = {}

    def register_module(self, name: str, *, force: bool = False) -> Callable[[Maker], Maker]:
        """Return a decorator that registers a class, or a function that creates a template, under `name`.

        Decorators can be stacked: one template, several names. `force` replaces a registered template; it is not needed
        for the example names of the LMDeploy document.

        Raises:
            ChatTemplateError: The name is registered already or is not text, or the decorated object is not callable.
        """
        if not isinstance(name, str) or not name.strip():
            raise ChatTemplateError(f"a chat template is registered under a name, got {name!r}", name=str(name))

        return partial(self._register, name, force)

    def _register(self, name: str, force: bool, maker: Maker) -> Maker:
        if not callable(maker):
            raise ChatTemplateError(
                f"chat template {name!r}: expected a class or function, got {maker!r:.80}", name=name
            )
        makers = self._known()
        if name in makers and not force and not vars(makers[name]).get("replaceable"):
            raise ChatTemplateError(
                f"a chat template named {name!r} is registered already ({_whose(makers[name])}): names are unique; "
                f"choose another name, or replace it with force=True",
                name=name,
            )
        makers[name] = maker  # type: ignore[assignment]  # the type of its result is unknown before a call
        self._matches.pop(name, None)
        return maker

    def get(self, name: str) -> TemplateMaker:
        """Return the maker of the template of `name`: a class for every built-in model.

        Raises:
            ChatTemplateError: The name is unknown; the message names near ones.
        """
        makers = self._known()
        if not isinstance(name, str) or name not in makers:
            raise ChatTemplateError(
                f"unknown chat template {name!r}{nearest(str(name).lower(), makers)}", name=str(name)
            )
        return makers[name]

    def best_match(self, model: str) -> str:
        """Return the name of the template that fits a model's name or path, such as `Qwen/Qwen2.5-7B-Instruct`.

        The organisation before the name is ignored. In a path, the last part that contains more than a word such as
        `checkpoint-500` is used. The template with the longest match fits. A name with an unknown word, as in
        `Hermes-3-Llama-3.1-8B`, fits no template: such a model often has a different template.

        Raises:
            ChatTemplateError: No known template fits the model; names the unknown words.
        """
        return self.fitting(model, f"no known chat template fits the model {str(model)!r:.100}")

    def fitting(self, model: str, problem: str) -> str:
        """Return the result of `best_match`; its error starts with `problem`."""
        closest = self.closest(model)
        if closest is None:
            raise ChatTemplateError(
                f"{problem}{self._hints(model)}. Pass a registered name (listed by CHAT_TEMPLATES and `agentkit "
                f"templates`), or the folder or file of the template of the model",
                name=str(model),
            )
        if closest.other_words:
            reason = of_another(closest.name, closest.other_words)
            raise ChatTemplateError(f"{problem}: {reason}", name=str(model), template=closest.name)
        return closest.name

    def _hints(self, model: str) -> str:
        last = next(iter(parts_of(str(model))), "")
        hints: list[str] = []
        # Do not list all names.
        near = similar(last, self)
        # The name is no typing mistake: another version, or a name that the pattern of the template excludes.
        if near is not None and _letters(last).startswith(_letters(near)):
            hints.append(f"the registered template {near!r} is for models with other names")
        elif near is not None:
            hints.append(f"did you mean {near!r}?")
        # Skip names of one or two letters, such as `yi`: too many words contain them.
        family = [name for name in self if len(name) > 2 and "".join(takewhile(str.isalpha, name)) in last]
        if family:
            hints.append(f"of the same family: {', '.join(family)}")
        if not hints:
            return ""
        return f" ({'; '.join(hints)})"

    def closest(self, model: str) -> Fit | None:
        """Return the template that fits a part of the name of a model best, or None."""
        unused_words: list[str] = []
        for part in parts_of(str(model)):
            spans = {name: span for name in self._known() if (span := self._fit(name, part)) is not None}
            if spans:
                # The longest match is the best match.
                best = max(spans, key=lambda name: spans[name][1] - spans[name][0])
                return Fit(best, unused_words + other_words(part, *spans[best]))
            if not has_only_known(part):
                unused_words.append(part)
        return None

    def __contains__(self, name: object) -> bool:
        return name in self._known()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, built-in ones first."""
        return iter(tuple(self._known()))

    def __len__(self) -> int:
        return len(self._known())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self)})"

    def _fit(self, name: str, part: str) -> tuple[int, int] | None:
        """Return the start and end of the match of a template in a part of a path, or None."""
        # A template without a pattern fits the model with its name.
        pattern = self._matches.get(name) or re.compile(rf"\A{re.escape(name.lower())}\Z")
        match = pattern.search(part)
        return None if match is None else match.span()

    def _known(self) -> dict[str, TemplateMaker]:
        if self._load is not None:
            makers, matches = self._load()
            # Names that were registered before the first use replace built-in names.
            self._makers = {**makers, **self._makers}
            self._matches = {**matches, **self._matches}
            self._load = None
        return self._makers


def _letters(name: str) -> str:
    """Return the letters and digits of a name."""
    return "".join(filter(str.isalnum, name))


def _whose(maker: object) -> str:
    home = getattr(maker, "__module__", "?")
    return f"{home}.{getattr(maker, '__qualname__', repr(maker)[:80])}"


def _builtin() -> tuple[Mapping[str, TemplateMaker], Mapping[str, re.Pattern[str]]]:
    from agentkit_prompts.chat_templates.builtin.builtin import builtin

    return builtin()


CHAT_TEMPLATES = ChatTemplateRegistry(_builtin)
"""The registry of this process, with the built-in models."""
