"""Recordings of exchanges with a model in a file, and a model that replays them in tests."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from agentkit.models import model_errors
from agentkit.models.abilities import OutputMode, output_modes_of
from agentkit.models.http.endpoint import model_secrets
from agentkit.models.model import Delta, Model, OnDelta, Reply, Usage, send_delta
from agentkit.models.model_errors import ModelError, ScriptExhausted
from agentkit.models.model_names import resolved_model
from agentkit.models.offline.scripted_model import send_words
from agentkit.models.prices import Price, price_of
from agentkit.models.settings import ModelSettings, with_settings
from agentkit_prompts.credentials import spellings
from agentkit_prompts.invalid_values import reason_of
from agentkit_prompts.system.regular_files import read_regular

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition

_FORMAT = 1
_MASK = "[secret]"
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE)
_MIN_SECRET = 8
"""Minimum characters of a secret in an environment variable."""
_REPLY = TypeAdapter(Reply)
_MODES = TypeAdapter(tuple[OutputMode, ...])
_DETAILS = ("model", "host", "status", "retry_after", "is_final", "text")
"""Attributes of a `ModelError` that are recorded."""


class ReplayError(ModelError):
    """A recording cannot be read, or contains no exchange for a request.

    Attributes:
        difference: Difference between the recorded request and the new request, as a unified diff; empty for other
            reasons.
    """

    def __init__(self, message: str, *, difference: str = "", **where: Any) -> None:
        super().__init__(message, **where)
        self.difference = difference


class RecordedModel:
    """Calls a model and records each exchange in a file: the request, and the reply or the `ModelError`.

    The file contains no headers. Keys of the model, and values of environment variables that are named like a secret
    (`..._KEY`, `..._TOKEN`), are masked everywhere. Other text of requests and replies is stored unchanged.

    Args:
        model: The model that receives the requests, or its name.
        path: A file that does not exist yet; only its owner can read it.

    Raises:
        FileExistsError: The file exists already.
    """

    def __init__(self, model: Model | str, path: str | Path) -> None:
        model = resolved_model(model)
        self._model = model
        self._path = Path(path)
        self.name = model.name
        self.price = price_of(model)
        self.output_modes = output_modes_of(model)
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            message = "the recording exists already: replay it with ReplayModel, or delete it to record again"
            raise FileExistsError(f"{self._path}: {message}") from error
        # The umask may have removed rights of the owner.
        self._path.chmod(0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(_line({"recording": _FORMAT, "model": model.name, "output_modes": self.output_modes}, ()))

    def with_settings(self, settings: ModelSettings) -> RecordedModel:
        """Return a model that records in the same file and calls the model with other settings."""
        model = copy(self)
        model._model = with_settings(self._model, settings)
        return model

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Call the model, and record the exchange. Errors of the model are recorded and raised."""
        pieces: list[Delta] = []
        listener = None
        # Without a listener the model gets no listener, because it may send another request for a stream.
        if on_delta is not None:
            listener = _recorder(pieces, on_delta)
        try:
            reply = await self._model.request(composition, on_delta=listener)
        except ModelError as error:
            self._record(composition, pieces, {"error": _error_data(error)})
            raise
        self._record(composition, pieces, {"reply": _REPLY.dump_python(reply, mode="json")})
        return reply

    def _record(self, composition: Composition, pieces: list[Delta], answer: dict[str, Any]) -> None:
        secrets = _secrets(*model_secrets(self._model))
        kinds = {delta[1:]: "" for delta in pieces}
        for delta in pieces:
            kinds[delta[1:]] += delta.text
        # A secret can be split between two deltas: the deltas of each kind are then joined before the secret is masked.
        if any(secret in text for secret in secrets for text in kinds.values()):
            pieces = [Delta(text, *kind) for kind, text in kinds.items()]
        line = _line(
            {"request": composition.to_openai(), "pieces": [_delta_data(delta) for delta in pieces], **answer}, secrets
        )
        with self._path.open("a", encoding="ascii") as file:
            file.write(line)


class ReplayModel:
    """Replays a file of `RecordedModel` without a network: the first unused exchange with an equal request.

    Args:
        path: The file.
        price: Price for the simulated cost of the replies; None: no cost.

    Raises:
        ReplayError: The file is not a recording, has the format of a newer version, or contains an invalid line.
        OSError: The file cannot be read.
    """

    def __init__(self, path: str | Path, *, price: Price | None = None) -> None:
        self._path = Path(path)
        self.price = price
        head, *lines = self._read()
        self.name: str = head["model"]
        self.output_modes: tuple[OutputMode, ...] = head["output_modes"]
        self._unused = lines

    def with_settings(self, settings: ModelSettings) -> ReplayModel:
        """Return this model: an exchange is selected by its request, which contains no settings."""
        return self

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Return the recorded reply, or raise the recorded error.

        Raises:
            ReplayError: No unused exchange has this request; the message contains the difference to the next exchange.
            ScriptExhausted: Every recorded exchange was used.
        """
        if not self._unused:
            raise ScriptExhausted(f"{self._path}: all recorded exchanges were used: record it again", model=self.name)
        # Secrets are masked in both requests, so that a recording can be replayed with other secrets.
        sent = json.loads(_line(composition.to_openai(), _secrets()))
        exchange = next((exchange for exchange in self._unused if exchange["request"] == sent), None)
        if exchange is None:
            recorded = self._unused[0]["request"]
            lines = difflib.unified_diff(
                _text_lines(recorded), _text_lines(sent), "recorded", "sent now", lineterm="", n=1
            )
            difference = "\n".join(lines)
            text = f"{self._path}: the request differs from the recording; if intended, record it again\n{difference}"
            raise ReplayError(text, difference=difference, model=self.name, name="request")
        self._unused.remove(exchange)
        if on_delta is not None:
            for piece in exchange["pieces"]:
                await send_delta(_read_delta(piece), on_delta)
        if "error" in exchange:
            raise _read_error(exchange["error"])
        reply = _REPLY.validate_python(exchange["reply"])
        # The exchange was recorded without a listener, so that it contains no deltas.
        if on_delta is not None and not exchange["pieces"]:
            await send_words(reply.message.text, on_delta)
        return reply

    def _read(self) -> list[Any]:
        rows: list[Any] = []
        for number, line in enumerate(read_regular(self._path).splitlines(), 1):
            try:
                row = json.loads(line)
                if number == 1:
                    self._check_head(row)
                else:
                    _check_exchange(row)
            except ReplayError:
                raise
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise ReplayError(
                    f"{self._path}, line {number}: not an exchange of a recording ({reason_of(error)})",
                    path=str(self._path),
                    line=number,
                ) from error
            rows.append(row)
        if not rows:
            raise ReplayError(f"{self._path}: the file is empty: record it with RecordedModel", path=str(self._path))
        return rows

    def _check_head(self, head: Any) -> None:
        if head["recording"] > _FORMAT:
            raise ReplayError(
                f"{self._path}: format {head['recording']} was written by a newer agentkit; this version reads up to "
                f"{_FORMAT}: upgrade agentkit",
                path=str(self._path),
                value=head["recording"],
            )
        head["model"] = str(head["model"])
        head["output_modes"] = _MODES.validate_python(head.get("output_modes", ("native", "tool", "prompted")))


def _check_exchange(row: Any) -> None:
    """Read each part of an exchange, so that an invalid file fails when it is opened instead of within a test."""
    _ = row["request"], [_read_delta(piece) for piece in row["pieces"]]
    if "error" in row:
        _read_error(row["error"])
    else:
        _REPLY.validate_python(row["reply"])


def _recorder(pieces: list[Delta], on_delta: OnDelta) -> OnDelta:
    """Return a listener that adds each delta to a list and passes it on."""

    def record(delta: Delta) -> Any:
        pieces.append(delta)
        return on_delta(delta)

    return record


def _delta_data(delta: Delta) -> Any:
    if delta.kind == "text":
        return delta.text
    return list(delta)


def _read_delta(piece: Any) -> Delta:
    if isinstance(piece, str):
        piece = [piece]
    delta = Delta(*piece)
    # The sums raise TypeError if a field has another type.
    _ = delta.text + delta.name, delta.call + 0
    return delta


def _line(data: Mapping[str, Any], secrets: Sequence[str]) -> str:
    return json.dumps(_masked(data, secrets), separators=(",", ":")) + "\n"


def _masked(value: Any, secrets: Sequence[str]) -> Any:
    """Return JSON data as plain dicts and lists, with every secret in its texts masked."""
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
    """Return the spellings of `keys` and of secrets in environment variables, the longest first."""
    named = [value.strip() for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    # A value without digits can be a word, and masking it would change unrelated text.
    values = [*keys, *[value for value in named if len(value) >= _MIN_SECRET and any(map(str.isdigit, value))]]
    # The longest first: if a shorter secret is part of a longer secret, masking it would leave the rest unmasked.
    return sorted({spelling for value in values for spelling in spellings(value)}, key=len, reverse=True)


def _text_lines(request: object) -> list[str]:
    """Return a request as lines of JSON, with line breaks inside of its texts."""
    return json.dumps(request, indent=1, ensure_ascii=False).replace("\\n", "\n").splitlines()


def _error_data(error: ModelError) -> dict[str, Any]:
    details = {name: value for name in _DETAILS if (value := getattr(error, name, None)) is not None}
    if isinstance(usage := getattr(error, "usage", None), Usage):
        details["usage"] = asdict(usage)
    return {"type": type(error).__name__, "message": str(error), **details}


def _read_error(data: Mapping[str, Any]) -> ModelError:
    # Without the constructor, which would add model and host to the message again.
    kind = getattr(model_errors, str(data["type"]), None)
    if not (isinstance(kind, type) and issubclass(kind, ModelError)):
        # The recorded error had a custom class.
        kind = ModelError
    error = kind.__new__(kind)
    error.args = (str(data["message"]),)
    details: dict[str, Any] = {"model": "", "host": "", "status": None, "retry_after": None}
    error.__dict__.update(details | {name: data[name] for name in _DETAILS if name in data})
    if "usage" in data:
        error.__dict__["usage"] = Usage(**data["usage"])
    return error
