"""`RedactingModel`: a model that receives placeholders instead of personal data."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from agentkit.errors import AgentDefinitionError, GuardError
from agentkit.models.abilities import fitted, output_modes_of, text_tokens_of
from agentkit.models.http.restored_text import RestoredText
from agentkit.models.model import MODEL_EXPECTED, Delta, Model, OnDelta, Reply, send_delta
from agentkit.models.model_errors import ModelError
from agentkit.models.prices import Price, price_of
from agentkit.models.redacting.personal_data import personal_data
from agentkit.models.redacting.placeholders import Detector, Placeholders, Redacted, Restoring
from agentkit.models.settings import ModelSettings, with_settings
from agentkit_prompts.composition.marked_content import changed_content
from agentkit_tools.calling.deadline import DeadlineError
from agentkit_tools.calling.tool_threads import run_in_thread
from agentkit_tools.errors import describe_error

if TYPE_CHECKING:
    from agentkit_prompts.composition.call_content import TextTokens
    from agentkit_prompts.composition.composition import Composition

_SECONDS = 30.0
"""Time limit of the detectors for one prompt."""


class RedactingModel:
    """Sends placeholders such as `[EMAIL_k3j9x0a2b4]` instead of personal data, and restores the data in replies.

    The program, its journals and its sessions contain the data; only the request contains placeholders. Replies, their
    deltas and the arguments of tool calls are restored. Media are sent unchanged.

    Args:
        model: A model or the name of a model.
        detectors: Functions that return the personal data of a text; `personal_data` by default.
        layers: `untrusted` to replace data in untrusted texts, such as the input, documents, results of tools and the
            conversation; `all` to replace data also in texts of the developer.
        key: Secret of the placeholders, random by default. With the same key, the same text has the same placeholder in
            every process, and a prompt cache finds the prompt of another process.

    Raises:
        AgentDefinitionError: An argument is invalid.
    """

    def __init__(
        self,
        model: Model | str,
        detectors: Sequence[Detector] = (personal_data,),
        *,
        layers: Literal["untrusted", "all"] = "untrusted",
        key: str | bytes = b"",
    ) -> None:
        from agentkit.models.model_names import resolved_model

        self._model = resolved_model(model)
        problems: list[str] = []
        if not callable(getattr(self._model, "request", None)):
            problems.append(f"model: {MODEL_EXPECTED}, got {model!r:.60}")
        is_list = isinstance(detectors, Sequence) and not isinstance(detectors, str)
        if not is_list or not detectors or not all(map(callable, detectors)):
            problems.append(f"detectors: expected functions of a text, such as [personal_data], got {detectors!r:.60}")
        if layers not in ("untrusted", "all"):
            problems.append(f"layers: expected 'untrusted' or 'all', got {layers!r:.60}")
        secret = key
        if isinstance(secret, str):
            secret = secret.encode("utf-8", "surrogatepass")
        if not isinstance(secret, bytes) or len(secret) > 64 or 0 < len(secret) < 16:
            problems.append("key: expected 16 to 64 bytes or characters")
        if problems:
            raise AgentDefinitionError(f"RedactingModel: {'; '.join(problems)}", name=problems[0].partition(":")[0])
        self._placeholders = Placeholders(detectors, secret or secrets.token_bytes(32), is_everywhere=layers == "all")

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._model.name

    @property
    def models(self) -> tuple[Model, ...]:
        """The model that receives the requests."""
        return (self._model,)

    @property
    def settings(self) -> Any:
        """Settings of the model; None if it has no settings."""
        return getattr(self._model, "settings", None)

    @property
    def price(self) -> Price | None:
        """Price of the model; None if it is unknown."""
        return price_of(self._model)

    @property
    def output_modes(self) -> Any:
        """Ways to request typed output, the preferred way first."""
        return output_modes_of(self._model)

    @property
    def text_tokens(self) -> TextTokens | None:
        """Token counter of the text that the model receives; None if no chat template writes the text here."""
        return text_tokens_of(self._model)

    @property
    def has_place_for_tools(self) -> bool:
        """True if the request of the model has a field for tools."""
        has_field: bool = getattr(self._model, "has_place_for_tools", True)
        return has_field

    def fitted(self, composition: Composition) -> Composition:
        """Return the part of a composition that the model accepts. Raises the errors of the model."""
        return fitted(self._model, composition)

    def with_settings(self, settings: ModelSettings) -> RedactingModel:
        """Return a copy in which the settings replace the settings of the model.

        Raises:
            AgentDefinitionError: The model does not support a setting.
        """
        return self.with_model(with_settings(self._model, settings))

    def with_model(self, model: Model) -> RedactingModel:
        """Return a copy with the same placeholders that sends its requests to another model."""
        clone = copy(self)
        clone._model = model
        return clone

    def redact(self, text: str) -> str:
        """Return a text with placeholders, such as for `observe(content=True, redact=model.redact)`."""
        return self._placeholders.add(text, set())

    def redacted(self, composition: Composition) -> tuple[Composition, frozenset[Redacted]]:
        """Return the composition that the model receives, and the replaced texts.

        Raises:
            GuardError: A detector failed, or returned an invalid finding.
        """
        try:
            return changed_content(composition, self._placeholders)
        except Exception as error:
            raise GuardError("detectors", "redaction", f"failed: {describe_error(error)}") from error

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Send the composition with placeholders, and return the reply with the original texts.

        Raises:
            GuardError: A detector failed, took too long, or returned an invalid finding; nothing was sent.
            ModelError: The request failed.
        """
        redacted, error = await run_in_thread(partial(self.redacted, composition), _SECONDS)
        if isinstance(error, DeadlineError):
            raise GuardError("detectors", "redaction", f"took longer than {_SECONDS:g} seconds") from None
        if error is not None:
            raise error
        sent, items = redacted
        if not items:
            return await self._model.request(composition, on_delta=on_delta)
        texts = {item.placeholder: item.text for item in items}
        json_text = Restoring(texts, is_json=True)
        text = json_text
        if not composition.is_answered_in_json:
            text = Restoring(texts)
        restored = RestoredText(text, json_text)
        listener = None
        if on_delta is not None:
            listener = _restoring(restored, on_delta)
        try:
            reply = await self._model.request(sent, on_delta=listener)
        except ModelError as failure:
            restored.error(failure)
            raise
        if on_delta is not None:
            for delta in restored.deltas([], is_last=True):
                await send_delta(delta, on_delta)
        return restored.reply(reply)


def _restoring(restored: RestoredText, on_delta: OnDelta) -> Callable[[Delta], Any]:
    """Return a listener that passes on restored deltas."""

    async def listen(delta: Delta) -> None:
        if delta.kind == "fallback":
            restored.restart()
            await send_delta(delta, on_delta)
            return
        for item in restored.deltas([delta], is_last=False):
            if item.text:
                await send_delta(item, on_delta)

    return listen
