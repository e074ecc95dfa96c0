"""Exchanges with a model, kept in a file and answered from it: tests of an agent against what a real model answered."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from agentkit.models import model_errors
from agentkit.models.abilities import output_modes_of
from agentkit.models.http.endpoint import model_secrets
from agentkit.models.model import Delta, Model, OnDelta, Reply, send_delta
from agentkit.models.model_errors import ModelError, ScriptExhausted
from agentkit.models.offline.scripted_model import send_words
from agentkit.models.prices import Price, price_of
from agentkit.models.settings import ModelSettings, with_settings
from agentkit_prompts.credentials import spellings
from agentkit_prompts.system.regular_files import read_regular

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition

__all__ = ["RecordedModel", "ReplayError", "ReplayModel"]

_FORMAT = 1
_MASK = "[secret]"
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE)
_MIN_SECRET = 8
_REPLY = TypeAdapter(Reply)
_DETAILS = ("model", "host", "status", "retry_after", "is_final", "text")


class ReplayError(ModelError):
    """A recording that cannot be read, or that has no answer to what was sent.

    Attributes:
        difference: What was recorded and what was sent now, line by line; empty where that is not the reason.
    """

    def __init__(self, message: str, *, difference: str = "", **where: Any) -> None:
        super().__init__(message, **where)
        self.difference = difference


class RecordedModel:
    """Calls a model and records each exchange in a file: the request, and the reply or the `ModelError`.

    The file holds no headers. Keys of the model, and values of environment variables named like a secret (`..._KEY`,
    `..._TOKEN`), are masked wherever they stand. What was asked and answered is in the file as it is.

    Args:
        model: The model that is asked.
        path: A file that does not exist yet; written for its owner only.

    Raises:
        FileExistsError: There is a recording already.
    """

    def __init__(self, model: Model, path: str | Path) -> None:
        self._model = model
        self._path = Path(path)
        self.name = model.name
        self.price = price_of(model)
        self.output_modes = output_modes_of(model)
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            message = "there is a recording already: replay it with ReplayModel, or delete it to record anew"
            raise FileExistsError(f"{self._path}: {message}") from error
        # The umask may have removed rights of the owner.
        self._path.chmod(0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(_line({"recording": _FORMAT, "model": model.name, "output_modes": self.output_modes}, ()))

    def with_settings(self, settings: ModelSettings) -> RecordedModel:
        """Return this model, in the same file, around the model with some settings in the place of its own."""
        made = copy(self)
        made._model = with_settings(self._model, settings)
        return made

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Ask the model. Raises what it raises."""
        pieces: list[Delta] = []

        def heard(delta: Delta) -> Any:
            pieces.append(delta)
            if on_delta is None:
                return None
            return on_delta(delta)

        try:
            reply = await self._model.request(composition, on_delta=None if on_delta is None else heard)
        except ModelError as error:
            self._keep(composition, pieces, {"error": _written(error)})
            raise
        self._keep(composition, pieces, {"reply": _REPLY.dump_python(reply, mode="json")})
        return reply

    def _keep(self, composition: Composition, pieces: list[Delta], answer: dict[str, Any]) -> None:
        secrets = _secrets(*model_secrets(self._model))
        kinds = {delta[1:]: "" for delta in pieces}
        for delta in pieces:
            kinds[delta[1:]] += delta.text
        # Two pieces together may have a secret that neither has.
        if any(secret in text for secret in secrets for text in kinds.values()):
            pieces = [Delta(text, *kind) for kind, text in kinds.items()]
        line = _line(
            {"request": composition.to_openai(), "pieces": [_piece(delta) for delta in pieces], **answer}, secrets
        )
        with self._path.open("a", encoding="ascii") as file:
            file.write(line)


class ReplayModel:
    """Answers from a file of `RecordedModel`, without a network: each exchange once, the first that fits what is sent.

    Args:
        path: The file.
        price: What it pretends to cost.

    Raises:
        ReplayError: The file is not a recording, is one of a newer version, or a line of it cannot be read.
        OSError: There is no such file.
    """

    def __init__(self, path: str | Path, *, price: Price | None = None) -> None:
        self._path = Path(path)
        self.price = price
        head, *lines = self._read()
        self.name: str = head["model"]
        self.output_modes = tuple(head.get("output_modes", ("native", "tool", "prompted")))
        self._left = lines

    def with_settings(self, settings: ModelSettings) -> ReplayModel:
        """Return this model: an exchange is known by its prompt, and the model was asked with its settings then."""
        return self

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Return the recorded reply, or raise the recorded error.

        Raises:
            ReplayError: Nothing recorded was answered to this; shows the difference to the next exchange.
            ScriptExhausted: Every recorded exchange was used.
        """
        if not self._left:
            raise ScriptExhausted(f"{self._path}: no exchange is left; record it again", model=self.name)
        # Secrets are masked on both sides, so that a recording fits other secrets too.
        sent = json.loads(_line(composition.to_openai(), _secrets()))
        exchange = next((one for one in self._left if one["request"] == sent), None)
        if exchange is None:
            recorded = self._left[0]["request"]
            lines = difflib.unified_diff(_shown(recorded), _shown(sent), "recorded", "sent now", lineterm="", n=1)
            difference = "\n".join(lines)
            text = f"{self._path}: another prompt than the one recorded; if it should be, record it anew\n{difference}"
            raise ReplayError(text, difference=difference, model=self.name, name="request")
        self._left.remove(exchange)
        if on_delta is not None:
            for piece in exchange["pieces"]:
                await send_delta(_delta(piece), on_delta)
        if "error" in exchange:
            raise _read_error(exchange["error"])
        reply = _REPLY.validate_python(exchange["reply"])
        # It was recorded without a listener, so it has no pieces.
        if on_delta is not None and not exchange["pieces"]:
            await send_words(reply.message.text, on_delta)
        return reply

    def _read(self) -> list[Any]:
        found: list[Any] = []
        for number, line in enumerate(read_regular(self._path).splitlines(), 1):
            try:
                one = json.loads(line)
                if number == 1:
                    if one["recording"] > _FORMAT:
                        raise ReplayError(
                            f"{self._path}: format {one['recording']} was written by a newer agentkit; this one reads "
                            f"up to {_FORMAT}: upgrade it",
                            path=str(self._path),
                            value=one["recording"],
                        )
                    one["model"] = str(one["model"])
                else:
                    _ = one["request"], [_delta(piece) for piece in one["pieces"]]
                    _ = _read_error(one["error"]) if "error" in one else _REPLY.validate_python(one["reply"])
            except ReplayError:
                raise
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                what = f"{type(error).__name__}: {error}"
                raise ReplayError(
                    f"{self._path}, line {number}: not an exchange of a recording ({what})",
                    path=str(self._path),
                    line=number,
                ) from error
            found.append(one)
        if not found:
            raise ReplayError(f"{self._path}: the file is empty: record it with RecordedModel", path=str(self._path))
        return found


def _piece(delta: Delta) -> Any:
    if delta.kind == "text":
        return delta.text
    return list(delta)


def _delta(piece: Any) -> Delta:
    if isinstance(piece, str):
        piece = [piece]
    delta = Delta(*piece)
    # These raise TypeError if a field has another type.
    _ = delta.text + delta.name, delta.call + 0
    return delta


def _line(data: Mapping[str, Any], secrets: Sequence[str]) -> str:
    return json.dumps(_masked(data, secrets), separators=(",", ":")) + "\n"


def _masked(value: Any, secrets: Sequence[str]) -> Any:
    """Return JSON data as plain dicts and lists, every secret in its texts masked."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, _MASK)
        return value
    if isinstance(value, Mapping):
        return {_masked(key, secrets): _masked(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, secrets) for item in value]
    return value


def _secrets(*keys: str) -> list[str]:
    """Return the written forms of secrets, longest first."""
    named = [value.strip() for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    # A word of the language is no secret, and masking it would hurt what has nothing to do with it.
    values = [*keys, *[one for one in named if len(one) >= _MIN_SECRET and any(map(str.isdigit, one))]]
    # A short secret may be part of a longer one, and would leave the rest of it.
    return sorted({form for value in values for form in spellings(value)}, key=len, reverse=True)


def _shown(request: object) -> list[str]:
    """Return a request as lines, the lines of its texts apart."""
    return json.dumps(request, indent=1, ensure_ascii=False).replace("\\n", "\n").splitlines()


def _written(error: ModelError) -> dict[str, Any]:
    details = {name: value for name in _DETAILS if (value := getattr(error, name, None)) is not None}
    return {"type": type(error).__name__, "message": str(error), **details}


def _read_error(data: Mapping[str, Any]) -> ModelError:
    # The constructor is not called: the message names model and host already.
    kind = getattr(model_errors, str(data["type"]), None)
    if not (isinstance(kind, type) and issubclass(kind, ModelError)):
        # The error has a class of the developer, which may not exist here.
        kind = ModelError
    error = kind.__new__(kind)
    error.args = (str(data["message"]),)
    details: dict[str, Any] = {"model": "", "host": "", "status": None}
    error.__dict__.update(details | {name: data[name] for name in _DETAILS if name in data})
    return error
