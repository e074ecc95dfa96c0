"""`EndpointModel`, the base class of models over HTTP: requests, streams, retries and typed errors."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from agentkit.ground.unknown_options import check_names
from agentkit.models.abilities import OutputMode
from agentkit.models.http.delta_sink import DeltaSink, ListenerError
from agentkit.models.http.endpoint_options import OF_SETTINGS, EndpointOptions, option_problems, refuse_options
from agentkit.models.http.error_chain import cut_chain
from agentkit.models.http.key_function import ApiKey
from agentkit.models.http.no_real_models import check_real_models
from agentkit.models.http.reader import IncompleteCall, ProtocolError, Reader
from agentkit.models.http.reply_body import DONE, documents
from agentkit.models.http.request_body import body_bytes
from agentkit.models.http.restored_text import RestoredText, guarded
from agentkit.models.http.retries import pause_before
from agentkit.models.http.sdk_clients import OPENAI, Clients, Sdk
from agentkit.models.http.sdk_errors import RequestTarget, translate
from agentkit.models.http.served_models import served_models
from agentkit.models.model import OnDelta, Reply
from agentkit.models.model_errors import ModelError, ModelInterrupted, ModelRequestError, ModelUnavailable
from agentkit.models.prices import Price, known_price
from agentkit.models.provider import Provider
from agentkit.models.providers import PROVIDERS
from agentkit.models.settings import NO_SETTINGS, Fields, ModelSettings, checked_settings, merged_body, settings_body
from agentkit_prompts.errors import TokenizerError
from agentkit_prompts.system.concurrency_limit import ConcurrencyLimit

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition

AnyReader = TypeVar("AnyReader", bound=Reader)

_SECONDS = 600.0
"""Default of `ModelSettings.timeout`."""
_TAIL_SECONDS = 10.0
"""Maximum seconds between the finish reason and later parts of a reply, such as its usage."""
_END_SECONDS = 0.5
"""Maximum seconds between the last event and the end of a stream, so that its connection can be reused."""
WITH_TEMPLATE = "CompletionModel, --chat-template NAME, or chat_template: under model: of an agent file"
"""The ways to name a chat template, for errors and warnings."""
_ONLY_TEXT = f"; if the server only completes text, name a chat template: {WITH_TEMPLATE}"
_MIN_SECRET = 8
"""Minimum length of a secret: shorter values are placeholders, and masking them would garble messages."""


class EndpointModel(ABC):
    """A model with an endpoint of an official SDK; subclasses create the body and the reader of the reply.

    The arguments are described in `EndpointOptions`. `client` is a custom client of the SDK: the caller closes it, and
    uses the model in one event loop only. Without `client` each event loop gets a separate client, which is closed at
    the end of the loop or by `aclose`.

    Raises:
        UnknownOption: Names all unknown options.
    """

    sdk: ClassVar[Sdk] = OPENAI
    """The SDK."""
    provider: Provider = PROVIDERS["openai"]
    """The provider, whose environment variables contain the key and the base URL."""
    path: ClassVar[str]
    """Path of requests, relative to the base URL."""
    models_path: ClassVar[str] = "/models"
    """Path of the list of models."""
    noun: ClassVar[str] = "completion"
    """Noun for a reply in errors."""
    requests_usage: ClassVar[bool] = False
    """True if a stream contains its usage only on request."""
    output_modes: tuple[OutputMode, ...] = ("native", "tool", "prompted")

    def __init__(
        self,
        model: str,
        *,
        api_key: ApiKey | None = None,
        base_url: str | None = None,
        client: Any = None,
        settings: ModelSettings | None = None,
        max_retries: int = 2,
        max_concurrency: int | None = None,
        price: Price | None = None,
        **unknown: Any,
    ) -> None:
        check_names(type(self).__name__, unknown, (*EndpointOptions.__annotations__, "client"), OF_SETTINGS)
        problems = option_problems({"max_retries": max_retries, "max_concurrency": max_concurrency, "price": price})
        refuse_options(type(self).__name__, problems)
        self.name = model
        self._price = price
        self._max_retries = max_retries
        self._limit = ConcurrencyLimit(max_concurrency)
        self._clients = Clients(self.sdk, self.provider, model, api_key, base_url, client)
        if settings is None:
            settings = NO_SETTINGS
        self._apply_settings(checked_settings(settings, f"model {model!r}: settings"))

    def with_settings(self, settings: ModelSettings) -> Self:
        """Return a copy in which the settings replace the settings of the model; connections and limits are shared.

        Raises:
            AgentDefinitionError: Names every setting that the model does not support.
        """
        # `copy` would fail: a model that contains a key cannot be copied by callers.
        clone = object.__new__(type(self))
        vars(clone).update(vars(self))
        clone._apply_settings(self.settings.merged(settings))
        return clone

    def _apply_settings(self, settings: ModelSettings) -> None:
        self.settings = settings
        self._timeout = settings.timeout or _SECONDS
        body = settings_body(settings, self._fields(), self.name, self._refused_settings(settings))
        self._settings_body = merged_body(body, settings.extra, keep_none=True)

    @property
    def _headers(self) -> Mapping[str, str]:
        """Additional headers of each request."""
        return self.settings.headers

    def _fields(self) -> Fields:
        """Return the conversion of the settings that the endpoint supports."""
        return {}

    def _refused_settings(self, settings: ModelSettings) -> Iterable[str]:
        """Return the problems of settings that the endpoint supports and this model does not."""
        return ()

    def _tool_choice(self, composition: Composition) -> str | None:
        """Return the tool choice of a request; None if the request contains none.

        Raises:
            ModelRequestError: The setting requires a tool that the request does not contain.
        """
        choice = self.settings.tool_choice
        names = [tool.name for tool in composition.tools]
        is_required = choice not in (None, "auto", "none")
        # A model that had to call a tool at every step would never finish.
        if is_required and any(message.role == "tool" for message in composition.intermediate):
            choice = "auto"
        elif is_required and (not names or choice not in ("required", *names)):
            tools = "the request has no tools"
            if names:
                tools = f"the tools are {', '.join(names)}"
            raise ModelRequestError(
                f"settings: tool_choice={choice!r}, and {tools}", model=self.name, name="tool_choice", value=choice
            )
        if not names:
            return None
        return choice

    @abstractmethod
    def _body(self, composition: Composition) -> dict[str, Any]:
        """Return the body of the request, without settings."""

    @abstractmethod
    def _reader(self, composition: Composition) -> Reader:
        """Return a new reader of the reply."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, host={self.host!r})"

    @property
    def host(self) -> str:
        """Host and port of the endpoint, without credentials."""
        return self._clients.host

    @property
    def address(self) -> str:
        """Address of requests, without credentials."""
        return f"{self._clients.bare_url.rstrip('/')}{self.path}"

    @property
    def port(self) -> int | None:
        """Port of the endpoint; None if the address of the endpoint is invalid."""
        return self._clients.port

    @property
    def price(self) -> Price | None:
        """The argument `price`, or else the known price of this host and model; see `EndpointOptions`."""
        if self._price is not None:
            return self._price
        return known_price(self.host, self.name)

    def request_body(self, composition: Composition) -> dict[str, Any]:
        """Return the body that `request` would send, without the fields of streams. Nothing is sent.

        Raises:
            ModelRequestError: The model does not accept the composition.
        """
        marked, _ = self._guarded(composition)
        return merged_body(self._body(marked), self._settings_body)

    def _guarded(self, composition: Composition) -> tuple[Composition, RestoredText | None]:
        """Return the composition to send, and the restorer of the original text in its reply, if it differs."""
        return guarded(composition, self.name, self.host)

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Send the composition and return the reply, streamed if `on_delta` is a listener.

        Raises:
            ModelAuthError: The key is missing, or the endpoint refuses it.
            ModelRequestError: The endpoint does not accept the request.
            ModelRateLimited: Still status 429 after the retries.
            ModelUnavailable: The endpoint cannot be reached, is too slow or fails, also after the retries.
            ModelInterrupted: The stream was cut; contains the text received until then.
            ModelReplyCut: The reply reached its token limit inside a tool call or while the model was thinking.
            ModelReplyError: The response of the endpoint is not a reply.
        """
        check_real_models(self)
        marked, restored_text = self._guarded(composition)
        try:
            body = merged_body(self._body(marked), self._settings_body)
            async with self._limit:
                sink = DeltaSink(on_delta, restored_text)
                reader = await self._read_reply(body, marked, sink)
                with self._translating(reader, sink):
                    reply = reader.reply(self.name)
        except ModelError as error:
            cut_chain(error, self._secrets())
            if restored_text is not None:
                restored_text.error(error)
            raise
        if restored_text is None:
            return reply
        return restored_text.reply(reply)

    async def served_models(self) -> tuple[str, ...]:
        """Return the sorted names of the models that the endpoint serves.

        Raises:
            ModelError: As for `request`.
        """
        check_real_models(self)
        headers = self.settings.headers
        return await served_models(self._clients, self._target(), self.models_path, headers, self._timeout)

    async def _send(self, body: dict[str, Any], new_reader: Callable[[], AnyReader]) -> AnyReader:
        """Send a body that was not created from a composition, and return the reader with the reply."""
        check_real_models(self)
        try:
            async with self._limit:
                return await self._send_with_retries(body, new_reader, DeltaSink(None))
        except ModelError as error:
            cut_chain(error, self._secrets())
            raise

    async def _read_reply(self, body: dict[str, Any], composition: Composition, sink: DeltaSink) -> Reader:
        """Send a request with retries, and return the reader with the reply."""
        return await self._send_with_retries(body, lambda: self._reader(composition), sink)

    async def _send_with_retries(
        self, body: dict[str, Any], new_reader: Callable[[], AnyReader], sink: DeltaSink
    ) -> AnyReader:
        client, attempt = await self._clients.client(), 0
        while True:
            reader = new_reader()
            try:
                with self._translating(reader, sink):
                    await self._send_once(client, body, reader, sink)
                return reader
            except ModelError as error:
                # Deltas that were sent cannot be taken back.
                if sink.has_sent:
                    raise
                # Later requests leave the refused field out, so this attempt does not count.
                if isinstance(error, ModelRequestError) and self._drop_usage_option(error):
                    continue
                attempt += 1
                pause = pause_before(error, attempt)
                if pause is None or attempt > self._max_retries:
                    raise
            await asyncio.sleep(pause)

    async def _send_once(self, client: Any, body: dict[str, Any], reader: Reader, sink: DeltaSink) -> None:
        sink.restart()
        async with asyncio.timeout(self._timeout):
            response = await self._post(client, body, is_streamed=sink.on_delta is not None)
        stream = documents(response)
        try:
            if sink.on_delta is not None:
                await self._read_stream(stream, reader, sink)
            else:
                async with asyncio.timeout(self._timeout):
                    async for document in stream:
                        if document is not DONE and not reader.is_over:
                            reader.add(document)
        finally:
            try:
                await stream.aclose()
            finally:
                # The task may be cancelled again meanwhile.
                await response.aclose()
        # The last deltas of the reader are sent only if the reply is complete.
        tail = reader.end()
        if reader.finish_reason is None and sink.on_delta is not None:
            if not sink.has_sent:
                reason = "the stream ended before the reply started; retry the request"
                raise ModelUnavailable(reason, model=self.name, host=self.host)
            raise ModelInterrupted.after(reader.text, "no finish reason", model=self.name, host=self.host)
        await sink.send(tail, is_last=True)

    async def _read_stream(self, stream: AsyncGenerator[Any], reader: Reader, sink: DeltaSink) -> None:
        """Read a stream to its end. The timeout is the time between new deltas: pings do not extend it."""
        latest, is_done, count = time.monotonic(), False, 0
        while True:
            has_ended = reader.finish_reason is not None
            deadline = latest + self._max_wait(reader, is_done=is_done)
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    document = await anext(stream, None)
            except TimeoutError:
                if has_ended or is_done:
                    return
                raise TimeoutError(f"nothing new for {self._timeout:g} s") from None
            except ProtocolError as error:
                raise error.in_event(count + 1) from error
            if document is None:
                return
            count += 1
            is_done = is_done or document is DONE
            if is_done or reader.is_over:
                continue
            try:
                new = reader.add(document)
            except ProtocolError as error:
                raise error.in_event(count, document) from error
            await sink.send(new)
            if new or (reader.finish_reason is not None and not has_ended):
                latest = time.monotonic()

    def _max_wait(self, reader: Reader, *, is_done: bool) -> float:
        """Return the maximum seconds to wait for the next document of a stream."""
        has_ended = reader.finish_reason is not None
        # Only the end of the connection is missing.
        if is_done or (has_ended and reader.is_over):
            return min(self._timeout, _END_SECONDS)
        # Only the usage may follow.
        if has_ended:
            return min(self._timeout, _TAIL_SECONDS)
        return self._timeout

    async def _post(self, client: Any, body: dict[str, Any], *, is_streamed: bool) -> Any:
        """Send a request and return its unread response."""
        from httpx2 import Response

        if is_streamed:
            body = {**body, "stream": True}
            if self.requests_usage and self._clients.requests_usage:
                body.setdefault("stream_options", {"include_usage": True})
        # The resources of the SDK walk every message, the largest cost of a long prompt, so the body is sent as bytes.
        # A custom client receives the object: the clients of other clouds read the model in it.
        content: dict[str, Any] = {"body": body}
        if self._clients.custom is None:
            content = {"content": body_bytes(body)}
        return await client.post(
            self.path,
            **content,
            cast_to=Response,
            options=await self._clients.options(self._timeout, self._headers),
            stream=True,
        )

    def _drop_usage_option(self, error: ModelRequestError) -> bool:
        """Stop requesting the usage of streams if the server refuses that; return True in this case."""
        clients = self._clients
        is_refused = clients.requests_usage and error.status in (400, 422) and "stream_options" in str(error)
        clients.requests_usage = clients.requests_usage and not is_refused
        return is_refused

    def _target(self) -> RequestTarget:
        advice = ""
        if self.path == "/chat/completions":
            advice = _ONLY_TEXT
        return RequestTarget(
            model=self.name,
            host=self.host,
            noun=self.noun,
            key_name=self.provider.key_variable,
            address_hint=self._clients.address_hint(self.path),
            advice=advice,
            secrets=self._secrets(),
        )

    @contextmanager
    def _translating(self, reader: Reader, sink: DeltaSink) -> Iterator[None]:
        """Translate errors of the SDK, the connection and the reader to errors of models."""
        try:
            yield
        # An error of a listener is raised unchanged, even if its class belongs to an SDK.
        except ListenerError as error:
            raise error.raised from error.raised.__cause__
        except (ModelError, TokenizerError):
            raise
        except Exception as error:
            received = reader.earlier_text or None
            if sink.has_sent or isinstance(error, IncompleteCall | ProtocolError):
                received = reader.text
            model_error = translate(error, self._target(), received, reader.usage)
            if model_error is None:
                raise
            raise model_error from error

    def _secrets(self) -> tuple[str, ...]:
        values = [*self._clients.keys, *self.settings.secrets]
        secrets = [part for value in values for part in (value, value.partition(" ")[2].strip())]  # "Bearer KEY"
        return tuple([secret for secret in secrets if len(secret) >= _MIN_SECRET])

    def __getstate__(self) -> dict[str, object]:
        """Return the state without connections.

        Raises:
            TypeError: The model contains a secret: a key, a client, a base URL with a password, or a secret setting.
        """
        if self._clients.contains_secret or self.settings.secrets:
            raise TypeError(
                f"{self!r} cannot be pickled or copied, because it contains a key, a client, headers or a password: "
                f"create the model in the other process, with the key in {self.provider.key_variable}"
            )
        # `PerLoop` leaves its connections out itself.
        return dict(vars(self))

    async def aclose(self) -> None:
        """Close the connections that the running event loop opened."""
        await self._clients.aclose()


def model_secrets(model: object) -> tuple[str, ...]:
    """Return the secrets that a model sends, so that they can be masked: its key and values of headers."""
    if isinstance(model, EndpointModel):
        return model._secrets()
    return tuple([secret for inner in getattr(model, "models", ()) for secret in model_secrets(inner)])
