"""A model that asks another one where the first cannot answer."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from copy import copy
from typing import TYPE_CHECKING

from agentkit.errors import AgentDefinitionError, named_problems
from agentkit.models.abilities import fitted, output_modes_of, text_tokens_of
from agentkit.models.model import Delta, Model, OnDelta, Reply, send_delta
from agentkit.models.model_errors import ModelError, ModelRateLimited, ModelUnavailable
from agentkit.models.prices import Price, price_of
from agentkit.models.settings import ModelSettings, with_settings
from agentkit_prompts.errors import check_types

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition
    from agentkit_prompts.composition.contents import TextTokens

__all__ = ["FallbackModel"]

_log = logging.getLogger("agentkit")
_AWAY = (ModelUnavailable, ModelRateLimited)


class FallbackModel:
    """Asks the first model, and the next one where that fails in a way that another may not.

    Each tries as often as it is made to first. A reply of which something was passed on already is not begun anew. Who
    listens hears of it as a `ModelFellBack` event; `Reply.model` names who answered.

    Args:
        models: Two models or more, or their names, the one to ask first in front.
        on: The kinds of errors after which the next one is asked; by default `ModelUnavailable` and `ModelRateLimited`.

    Raises:
        AgentDefinitionError: There are fewer than two models, one is not a model, they cannot be asked for structured
            output in one way, or `on` holds something else than classes of `ModelError`.
    """

    def __init__(self, *models: Model | str, on: Iterable[type[ModelError]] = _AWAY) -> None:
        from agentkit.models.model_names import model as named

        self.models = tuple([named(one) if isinstance(one, str) else one for one in models])
        check_types(AgentDefinitionError, "FallbackModel", on=(on, Iterable, "classes of ModelError"))
        self.on = tuple(on)
        _refuse(self._wrong_arguments())
        first, *others = [output_modes_of(one) for one in self.models]
        self.output_modes = tuple([mode for mode in first if all(mode in modes for modes in others)])
        if not self.output_modes:
            _refuse(["models: they have no way in common to be asked for structured output"])
        self.name = " | ".join([one.name for one in self.models])

    def _wrong_arguments(self) -> Iterator[str]:
        for one in self.models:
            if not callable(getattr(one, "request", None)):
                yield f"models: expected a model, got {one!r:.60}"
        if len(self.models) < 2:
            yield f"models: expected two models or more, got {len(self.models)}"
        for kind in self.on:
            if not (isinstance(kind, type) and issubclass(kind, ModelError)):
                yield f"on: expected classes of ModelError, got {kind!r:.60}"

    @property
    def price(self) -> Price | None:
        """That of the dearest model; None where one is not known. A reply has the money of the model that answered."""
        prices = [price_of(one) for one in self.models]
        known = [price for price in prices if price is not None]
        if len(known) == len(prices):
            return max(known, key=lambda price: price.input + price.output)
        return None

    def with_settings(self, settings: ModelSettings) -> FallbackModel:
        """Return this model with some settings in the place of those of each.

        Raises:
            AgentDefinitionError: One of them cannot do one of the settings.
        """
        made = copy(self)
        made.models = tuple([with_settings(one, settings) for one in self.models])
        return made

    @property
    def text_tokens(self) -> TextTokens | None:
        """What counts the text that the first model is sent; None where no chat template writes it."""
        return text_tokens_of(self.models[0])

    def fitted(self, composition: Composition) -> Composition:
        """Return what the first model sends of a composition. Raises what that one raises."""
        return fitted(self.models[0], composition)

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Ask one model after the other. Raises what the last one raises, with notes of the others."""
        has_begun = False

        def heard(delta: Delta) -> object:
            nonlocal has_begun
            has_begun = True
            assert on_delta is not None
            return on_delta(delta)

        failed: list[ModelError] = []
        left = iter(self.models)
        asked = next(left)
        while True:
            try:
                reply = await asked.request(composition, on_delta=None if on_delta is None else heard)
            except ModelError as error:
                # A reply that has begun cannot be begun again by another model.
                following = None
                if isinstance(error, self.on) and not has_begun:
                    following = next(left, None)
                if following is None:
                    for before in failed:
                        error.add_note(f"Before that: {before}")
                    raise
                failed.append(error)
                _log.warning("%s; asking %s", error, following.name)
                if on_delta is not None:
                    await send_delta(Delta(str(error), "fallback", name=following.name), on_delta)
                asked = following
            else:
                return _priced(reply, asked)


def _refuse(problems: Iterable[str]) -> None:
    problems = list(problems)
    if problems:
        raise AgentDefinitionError(f"FallbackModel: {'; '.join(problems)}", **named_problems(problems))


def _priced(reply: Reply, model: Model) -> Reply:
    from dataclasses import replace

    price, usage = price_of(model), reply.usage
    if price is None or usage.money is not None or not (usage.input_tokens or usage.output_tokens):
        return reply
    return replace(reply, usage=replace(usage, money=price.of(usage)))
