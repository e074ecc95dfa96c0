"""A model that sends a request to the next model if the first model fails."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from copy import copy
from typing import TYPE_CHECKING

from agentkit.errors import AgentDefinitionError, named_problems
from agentkit.models.abilities import fitted, output_modes_of, text_tokens_of
from agentkit.models.model import MODEL_EXPECTED, Delta, Model, OnDelta, Reply, send_delta
from agentkit.models.model_errors import ModelError, ModelRateLimited, ModelUnavailable
from agentkit.models.prices import Price, price_of
from agentkit.models.settings import ModelSettings, with_settings
from agentkit_prompts.errors import check_types

if TYPE_CHECKING:
    from agentkit_prompts.composition.call_content import TextTokens
    from agentkit_prompts.composition.composition import Composition

_log = logging.getLogger("agentkit")
_TEMPORARY_ERRORS = (ModelUnavailable, ModelRateLimited)


class FallbackModel:
    """Sends a request to the first model, and to the next model after an error that another model may avoid.

    Each model retries first, as its own settings say. A reply is not restarted by another model once a delta of the
    reply was sent to the listener. The listener receives a `ModelFellBack` event; `Reply.model` names the model that
    replied.

    Args:
        models: At least two models or model names, in the order of the requests.
        on: Classes of errors after which the next model is tried; by default `ModelUnavailable` and
            `ModelRateLimited`.

    Raises:
        AgentDefinitionError: Fewer than two models, an argument that is not a model, no common output mode, or a
            member of `on` that is not a class of `ModelError`.
    """

    def __init__(self, *models: Model | str, on: Iterable[type[ModelError]] = _TEMPORARY_ERRORS) -> None:
        from agentkit.models.model_names import resolved_model

        self.models = tuple([resolved_model(model) for model in models])
        check_types(AgentDefinitionError, "FallbackModel", on=(on, Iterable, "classes of ModelError"))
        self.on = tuple(on)
        _check(self._problems())
        first, *other_modes = [output_modes_of(model) for model in self.models]
        self.output_modes = tuple([mode for mode in first if all(mode in modes for modes in other_modes)])
        if not self.output_modes:
            _check(["models: the models have no common output mode"])
        self.name = " | ".join([model.name for model in self.models])

    def _problems(self) -> Iterator[str]:
        for model in self.models:
            if not callable(getattr(model, "request", None)):
                yield f"models: {MODEL_EXPECTED}, got {model!r:.60}"
        if len(self.models) < 2:
            yield f"models: expected two models or more, as in FallbackModel(model, model), got {len(self.models)}"
        for kind in self.on:
            if not (isinstance(kind, type) and issubclass(kind, ModelError)):
                yield f"on: expected classes of ModelError, got {kind!r:.60}"

    @property
    def price(self) -> Price | None:
        """Price of the most expensive model; None if a price is unknown. A reply contains its actual cost."""
        prices: list[Price] = []
        for model in self.models:
            price = price_of(model)
            if price is None:
                return None
            prices.append(price)
        return max(prices, key=lambda price: price.input + price.output)

    def with_settings(self, settings: ModelSettings) -> FallbackModel:
        """Return a copy in which the settings replace the settings of each model.

        Raises:
            AgentDefinitionError: A model does not support a setting.
        """
        clone = copy(self)
        clone.models = tuple([with_settings(model, settings) for model in self.models])
        return clone

    @property
    def text_tokens(self) -> TextTokens | None:
        """Token counter of the text that the first model receives; None if no chat template writes the text here."""
        return text_tokens_of(self.models[0])

    def fitted(self, composition: Composition) -> Composition:
        """Return the part of a composition that the first model accepts. Raises the errors of that model."""
        return fitted(self.models[0], composition)

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Send the composition to one model after the other.

        Raises:
            ModelError: The error of the last model that was tried, with the earlier errors as notes.
        """
        sink = _DeltaFlag(on_delta)
        errors: list[ModelError] = []
        models = iter(self.models)
        model = next(models)
        while True:
            try:
                return _with_cost(await model.request(composition, on_delta=sink.listener), model)
            except ModelError as error:
                next_model = None
                # Deltas that were sent cannot be taken back, so another model must not restart the reply.
                if isinstance(error, self.on) and not sink.has_sent:
                    next_model = next(models, None)
                if next_model is None:
                    for earlier in errors:
                        error.add_note(f"Before that: {earlier}")
                    raise
                errors.append(error)
                _log.warning("%s; trying %s", error, next_model.name)
                if on_delta is not None:
                    await send_delta(Delta(str(error), "fallback", name=next_model.name), on_delta)
                model = next_model


class _DeltaFlag:
    """Forwards deltas to a listener and remembers if a piece of a reply was sent."""

    def __init__(self, on_delta: OnDelta | None) -> None:
        self._on_delta = on_delta
        self.has_sent = False

    @property
    def listener(self) -> OnDelta | None:
        if self._on_delta is None:
            return None
        return self._send

    def _send(self, delta: Delta) -> object:
        # The notice of an inner `FallbackModel` is no piece of a reply.
        if delta.kind != "fallback":
            self.has_sent = True
        assert self._on_delta is not None
        return self._on_delta(delta)


def _check(problems: Iterable[str]) -> None:
    problems = list(problems)
    if problems:
        raise AgentDefinitionError(f"FallbackModel: {'; '.join(problems)}", **named_problems(problems))


def _with_cost(reply: Reply, model: Model) -> Reply:
    from dataclasses import replace

    price, usage = price_of(model), reply.usage
    if price is None or usage.money is not None or not (usage.input_tokens or usage.output_tokens):
        return reply
    return replace(reply, usage=replace(usage, money=price.of(usage)))
