"""Chat templates by the name of their model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from agentkit_prompts.chat_templates.protocol import ChatTemplate
from agentkit_prompts.errors import ChatTemplateError, nearest

__all__ = ["CHAT_TEMPLATES", "ChatTemplateRegistry", "TemplateMaker"]

TemplateMaker: TypeAlias = Callable[..., ChatTemplate]
"""A class or function that makes a template; its keywords override fields."""

Maker = TypeVar("Maker", bound=Callable[..., object])
_SEPARATOR = re.compile(r"[/\\]+")


class ChatTemplateRegistry:
    """Names, and what makes the template of each.

    Args:
        load: Returns templates to begin with and, by name, patterns of the names of their models; asked at first use.
    """

    def __init__(
        self, load: Callable[[], tuple[Mapping[str, TemplateMaker], Mapping[str, re.Pattern[str]]]] | None = None
    ) -> None:
        self._load = load
        self._makers: dict[str, TemplateMaker] = {}
        self._matches: dict[str, re.Pattern[str]] = {}

    def register_module(self, name: str, *, force: bool = False) -> Callable[[Maker], Maker]:
        """Return a decorator that registers a class, or a function that makes a template, under `name`.

        Decorators can be stacked: one template, several names. `force` replaces what has the name already; the names
        that the LMDeploy document registers as its examples can be registered without it.

        Raises:
            ChatTemplateError: The name is taken or no text, or what is decorated cannot be called.
        """
        if not isinstance(name, str) or not name.strip():
            raise ChatTemplateError(f"a chat template is registered under a name, got {name!r}")

        def register(maker: Maker) -> Maker:
            if not callable(maker):
                raise ChatTemplateError(f"chat template {name!r}: expected a class or function, got {maker!r:.80}")
            known = self._known()
            if name in known and not force and not vars(known[name]).get("replaceable"):
                raise ChatTemplateError(
                    f"a chat template named {name!r} is registered already ({_whose(known[name])}): names are unique; "
                    f"choose another one, or replace it with force=True"
                )
            known[name] = maker  # type: ignore[assignment]
            self._matches.pop(name, None)
            return maker

        return register

    def get(self, name: str) -> TemplateMaker:
        """Return what makes the template of `name`: a class for every built-in model.

        Raises:
            ChatTemplateError: The name is unknown; the message names near ones.
        """
        known = self._known()
        if not isinstance(name, str) or name not in known:
            raise ChatTemplateError(f"unknown chat template {name!r}{nearest(str(name).lower(), known)}")
        return known[name]

    def best_match(self, model: str) -> str:
        """Return the name of the template that fits a model's name or path, such as `Qwen/Qwen2.5-7B-Instruct`.

        The name of the model decides, never the organisation in front of it; of a path on disk, the last part that
        any template knows. The template that recognises most of it fits.

        Raises:
            ChatTemplateError: No template knows the model.
        """
        known = self._known()
        parts = _parts(str(model))
        for part in parts:
            found = {name: length for name in known if (length := self._fit(name, part))}
            if found:
                return max(found, key=lambda name: found[name])
        raise ChatTemplateError(
            f"no chat template is known to fit the model {str(model)!r}{nearest(parts[0] if parts else '', known)}. "
            f"Take one by name, or the Jinja template that the model ships"
        )

    def __contains__(self, name: object) -> bool:
        return name in self._known()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, built-in ones first."""
        return iter(tuple(self._known()))

    def __len__(self) -> int:
        return len(self._known())

    def _fit(self, name: str, part: str) -> int:
        """Return how many characters of a part of a path the template recognises."""
        pattern = self._matches.get(name)
        if pattern is None:
            return len(name) if part == name.lower() else 0
        found = pattern.search(part)
        return len(found[0]) if found else 0

    def _known(self) -> dict[str, TemplateMaker]:
        if self._load is not None:
            makers, matches = self._load()
            self._makers = {**makers, **self._makers}
            self._matches = {**matches, **self._matches}
            self._load = None
        return self._makers


def _parts(model: str) -> list[str]:
    """Return what may be the name of the model, in lower case and the likeliest first."""
    parts = [part for part in _SEPARATOR.split(model.lower()) if part]
    for part in parts:
        if part.startswith("models--"):  # a folder of the Hugging Face cache
            return [part.rsplit("--", 1)[1]]
    if len(parts) == 2 and model[0] not in "/\\.~":  # organisation/name
        return parts[1:]
    return parts[::-1]


def _whose(maker: object) -> str:
    home = getattr(maker, "__module__", "?")
    return f"{home}.{getattr(maker, '__qualname__', repr(maker)[:80])}"


def _builtin() -> tuple[Mapping[str, TemplateMaker], Mapping[str, re.Pattern[str]]]:
    from agentkit_prompts.chat_templates.builtin.builtin import builtin

    return builtin()


CHAT_TEMPLATES = ChatTemplateRegistry(_builtin)
"""The registry of this process, with the built-in models."""
