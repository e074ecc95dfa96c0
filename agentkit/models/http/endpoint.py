"""What every model behind an HTTP endpoint shares: the request, the stream, another attempt, and typed errors."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypedDict, TypeVar

from agentkit.errors import AgentDefinitionError
from agentkit.ground.unknown_options import check_names
from agentkit.models.abilities import OutputMode
from agentkit.models.http.no_real_models import check_real_models
from agentkit.models.http.reply_body import DONE, documents
from agentkit.models.http.reply_reader import IncompleteCall, Reader
from agentkit.models.http.request_body import body_bytes
from agentkit.models.http.retries import pause_before
from agentkit.models.http.sdk_clients import OPENAI, Clients, Sdk
from agentkit.models.http.sdk_errors import RequestTarget, translate
from agentkit.models.model import Delta, OnDelta, Reply, send_delta
from agentkit.models.model_errors import ModelError, ModelInterrupted, ModelRequestError, ModelUnavailable
from agentkit.models.prices import Price, known_price
from agentkit.models.settings import NO_SETTINGS, Fields, ModelSettings, checked_settings, merged_body, settings_body
from agentkit_prompts.credentials import spellings
from agentkit_prompts.system.concurrency_limit import ConcurrencyLimit

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition

__all__ = ["OF_SETTINGS", "DeltaSink", "EndpointModel", "EndpointOptions", "model_secrets"]

AnyReader = TypeVar("AnyReader", bound=Reader)

OF_SETTINGS = {field.name: "settings" for field in fields(ModelSettings)}
"""The options that are given as `settings=ModelSettings(...)`."""
_SECONDS = 600.0
_TAIL_SECONDS = 10.0
"""How long is waited for what follows the end of a reply, such as its usage."""
_END_SECONDS = 0.5
"""How long is waited for the end of a stream whose last event has come, so that its connection can be used again."""
_ONLY_TEXT = (
    "; if the server only completes text, name a chat template: CompletionModel, --chat-template NAME, or "
    "chat_template: under model: of an agent file"
)
_MIN_SECRET = 8
"""Shorter values are placeholders; taking them out of messages would only garble the words."""


class EndpointOptions(TypedDict, total=False):
    """What every model behind an endpoint can be made with; all of it may be left out."""

    api_key: str | None
    """The key; by default that of the environment, read at the first request. A server that is not the provider's own
    may need none."""
    base_url: str | None
    """Where requests go; by default the address in the environment, or else the provider's own."""
    settings: ModelSettings | None
    """How it is to answer."""
    max_retries: int
    """Further attempts (2 when not given) after a 408, 409, 429 or 5xx, a connection that failed, or a stream that was
    cut before anything of it was passed on."""
    max_concurrency: int | None
    """Requests at once; others wait for their turn."""
    price: Price | None
    """What `Limits(money=)` and `result.cost` count with; without one it is that of `prices.json`, where the provider
    itself is asked."""


class EndpointModel(ABC):
    """Talks to an endpoint through an official SDK; a subclass makes the body, and reads the reply.

    The arguments are those of `EndpointOptions`. `client` is a ready client of the SDK, which stays yours to close, and
    to use from one event loop only; otherwise each event loop gets a client of its own, closed when the loop ends, or
    by `aclose`.

    Raises:
        UnknownOption: Names all the options that there are not.
    """

    sdk: Sdk = OPENAI
    """Which SDK it talks through."""
    path: ClassVar[str]
    """Where requests go, behind the base URL."""
    noun: ClassVar[str] = "completion"
    """What a reply is called in errors."""
    requests_usage: ClassVar[bool] = False
    """Whether a stream has to be asked for its usage."""
    output_modes: tuple[OutputMode, ...] = ("native", "tool", "prompted")

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: Any = None,
        settings: ModelSettings | None = None,
        max_retries: int = 2,
        max_concurrency: int | None = None,
        price: Price | None = None,
        **unknown: Any,
    ) -> None:
        check_names(type(self).__name__, unknown, (*EndpointOptions.__annotations__, "client"), OF_SETTINGS)
        if max_concurrency is not None and (type(max_concurrency) is not int or max_concurrency < 1):
            raise AgentDefinitionError(
                f"max_concurrency: expected a number of requests, 1 or more, got {max_concurrency!r:.40}",
                name="max_concurrency",
            )
        self.name = model
        self._price = price
        self._max_retries = max_retries
        self._limit = ConcurrencyLimit(max_concurrency)
        self._clients = Clients(self.sdk, model, api_key, base_url, client)
        self._apply_settings(
            checked_settings(NO_SETTINGS if settings is None else settings, f"model {model!r}: settings")
        )

    def with_settings(self, settings: ModelSettings) -> Self:
        """Return this model with some settings in the place of its own; connections and limits are shared.

        Raises:
            AgentDefinitionError: Names every setting that it cannot do.
        """
        # Not `copy`: a model that holds a key refuses it.
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        made._apply_settings(self.settings.merged(settings))
        return made

    def _apply_settings(self, settings: ModelSettings) -> None:
        self.settings = settings
        self._timeout = _SECONDS if settings.timeout is None else settings.timeout
        body = settings_body(settings, self._fields(), self.name, self._refused_settings(settings))
        self._settings_body = merged_body(body, settings.extra, keep_none=True)

    def _fields(self) -> Fields:
        """Return the settings that it can do."""
        return {}

    def _refused_settings(self, settings: ModelSettings) -> Iterable[str]:
        """Return what this model does not take of the settings that the endpoint has."""
        return ()

    def _tool_choice(self, composition: Composition) -> str | None:
        """Return which tools the model may call; None where the endpoint is to decide.

        Raises:
            ModelRequestError: It has to call a tool that is not offered.
        """
        choice = self.settings.tool_choice
        if choice not in (None, "auto", "none"):
            # A model that has to call a tool at every step never answers.
            if any(message.role == "tool" for message in composition.intermediate):
                return "auto" if composition.tools else None
            offered = [tool.name for tool in composition.tools]
            if not offered or (choice != "required" and choice not in offered):
                tools = "the request has no tools"
                if offered:
                    tools = f"the tools are {', '.join(offered)}"
                raise ModelRequestError(
                    f"settings: tool_choice={choice!r}, and {tools}", model=self.name, name="tool_choice", value=choice
                )
        return choice if composition.tools else None

    @abstractmethod
    def _body(self, composition: Composition) -> dict[str, Any]:
        """Return the body of the request, without settings."""

    @abstractmethod
    def _reader(self, composition: Composition) -> Reader:
        """Return what reads the reply."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, host={self.host!r})"

    @property
    def host(self) -> str:
        """Host and port of the endpoint, without credentials."""
        return self._clients.host

    @property
    def price(self) -> Price | None:
        """What it costs: the price it was given, or that of a model of this name where the provider itself is asked."""
        if self._price is not None:
            return self._price
        return known_price(self.host, self.name)

    def request_body(self, composition: Composition) -> dict[str, Any]:
        """Return what `request` would send for the composition, without what only a stream has. Nothing is sent.

        Raises:
            ModelRequestError: It cannot be put into a request.
        """
        return merged_body(self._body(composition), self._settings_body)

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Send the composition and return the reply; stream it when there is a listener.

        Raises:
            ModelAuthError: There is no key, or the endpoint refuses it.
            ModelRequestError: The endpoint does not accept the request.
            ModelRateLimited: Still 429 after the retries.
            ModelUnavailable: Unreachable, too slow or failing after the retries.
            ModelInterrupted: The stream broke off; carries the text until then.
            ModelReplyCut: The reply reached its limit of tokens where half of it cannot be used.
            ModelReplyError: The endpoint answered something else than a reply.
        """
        check_real_models(self)
        try:
            body = self.request_body(composition)
            async with self._limit:
                sink = DeltaSink(on_delta)
                reader = await self._read_reply(body, composition, sink)
                with self._translating(reader, sink):
                    return reader.reply(self.name)
        except ModelError as error:
            _cut_chain(error, self._secrets())
            raise

    async def _send(self, body: dict[str, Any], new_reader: Callable[[], AnyReader]) -> AnyReader:
        """Send a body that is no composition's, and return what has read the answer."""
        check_real_models(self)
        try:
            async with self._limit:
                return await self._send_with_retries(body, new_reader, DeltaSink(None))
        except ModelError as error:
            _cut_chain(error, self._secrets())
            raise

    async def _read_reply(self, body: dict[str, Any], composition: Composition, sink: DeltaSink) -> Reader:
        """Send a request until it is answered, and return what has read the answer."""
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
                # A piece that was passed on cannot be taken back.
                if sink.has_sent:
                    raise
                # The refused field is left out from now on, so this attempt does not count.
                if isinstance(error, ModelRequestError) and self._drop_usage_option(error):
                    continue
                attempt += 1
                pause = pause_before(error, attempt)
                if pause is None or attempt > self._max_retries:
                    raise
            await asyncio.sleep(pause)

    async def _send_once(self, client: Any, body: dict[str, Any], reader: Reader, sink: DeltaSink) -> None:
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
        # Text that was held back is passed on only if the reply has ended.
        tail = reader.end()
        if reader.finish_reason is None and sink.on_delta is not None:
            if not sink.has_sent:
                why = "the stream ended before there was anything of a reply; ask again"
                raise ModelUnavailable(why, model=self.name, host=self.host)
            raise ModelInterrupted.after(reader.text, "no finish reason", model=self.name, host=self.host)
        await sink.send(tail)

    async def _read_stream(self, stream: AsyncGenerator[Any], reader: Reader, sink: DeltaSink) -> None:
        """Read a stream to its end. The time limit is for something new: pings do not extend it."""
        latest, is_done = time.monotonic(), False
        while True:
            has_ended = reader.finish_reason is not None
            seconds = self._timeout
            # Only the end of the connection is missing, or the usage may follow.
            if is_done or (has_ended and reader.is_over):
                seconds = min(seconds, _END_SECONDS)
            elif has_ended:
                seconds = min(seconds, _TAIL_SECONDS)
            try:
                async with asyncio.timeout(max(0.0, latest + seconds - time.monotonic())):
                    document = await anext(stream, None)
            except TimeoutError:
                if has_ended or is_done:
                    return
                raise TimeoutError(f"nothing new for {self._timeout:g} s") from None
            if document is None:
                return
            is_done = is_done or document is DONE
            if is_done or reader.is_over:
                continue
            new = reader.add(document)
            await sink.send(new)
            if new or (reader.finish_reason is not None and not has_ended):
                latest = time.monotonic()

    async def _post(self, client: Any, body: dict[str, Any], *, is_streamed: bool) -> Any:
        """Send a request and return its response, unread."""
        from httpx2 import Response

        if is_streamed:
            is_asked = self.requests_usage and self._clients.requests_usage
            options = {"stream_options": {"include_usage": True}} if is_asked else {}
            body = {**options, **body, "stream": True}
        # Not the methods of the SDK's resources, and the body as bytes: an SDK walks every message, most of the cost of
        # a long prompt. A client that was given may have to read it: those for other clouds find the model in it.
        sent = {"body": body} if self._clients.given is not None else {"content": body_bytes(body)}
        return await client.post(
            self.path,
            **sent,
            cast_to=Response,
            options=self._clients.options(self._timeout, dict(self.settings.headers)),
            stream=True,
        )

    def _drop_usage_option(self, error: ModelRequestError) -> bool:
        """Whether a server refused to be asked for the usage: it is not asked from now on."""
        clients = self._clients
        is_refused = clients.requests_usage and error.status in (400, 422) and "stream_options" in str(error)
        clients.requests_usage = clients.requests_usage and not is_refused
        return is_refused

    def _target(self) -> RequestTarget:
        sdk, address = self.sdk, self._clients.address
        return RequestTarget(
            self.name,
            self.host,
            self.path,
            self.noun,
            sdk.key,
            f"{address} ends where {self.path} begins",
            _ONLY_TEXT if self.path == "/chat/completions" else "",
            self._secrets(),
        )

    @contextmanager
    def _translating(self, reader: Reader, sink: DeltaSink) -> Iterator[None]:
        """Raise what goes wrong inside as one of our errors."""
        try:
            yield
        # An error of a listener keeps its class, also if it is one of an SDK.
        except _ListenerError as error:
            raise error.raised from error.raised.__cause__
        except ModelError:
            raise
        except Exception as error:
            received = reader.earlier_text or None
            if sink.has_sent or isinstance(error, IncompleteCall):
                received = reader.text
            ours = translate(error, self._target(), received)
            if ours is None:
                raise
            raise ours from error

    def _secrets(self) -> tuple[str, ...]:
        values = [self._clients.key, *self.settings.secrets]
        secrets = [part for value in values for part in (value, value.partition(" ")[2].strip())]  # "Bearer KEY"
        return tuple([secret for secret in secrets if len(secret) >= _MIN_SECRET])

    def __getstate__(self) -> dict[str, object]:
        """Return the state without connections.

        Raises:
            TypeError: It holds a secret: a key, a client, a base URL with a password, or one in its settings.
        """
        if self._clients.contains_secret or self.settings.secrets:
            raise TypeError(
                f"{self!r} cannot be pickled or copied, as it holds a key, a client, headers or a password: make it "
                f"again there, with the key in {self.sdk.key}"
            )
        # Clients leave their connections out themselves.
        return dict(vars(self))

    async def aclose(self) -> None:
        """Close the connections that the running event loop opened."""
        await self._clients.aclose()


class _ListenerError(Exception):
    """What a listener raised: it is the listener's, whatever its class."""

    def __init__(self, raised: Exception) -> None:
        super().__init__(str(raised))
        self.raised = raised


class DeltaSink:
    """Passes pieces on to who listens, and knows whether there were any."""

    def __init__(self, on_delta: OnDelta | None) -> None:
        self.on_delta = on_delta
        self.has_sent = False

    async def send(self, deltas: Sequence[Delta]) -> None:
        if self.on_delta is None:
            return
        for delta in deltas:
            if delta.text:
                self.has_sent = True
                try:
                    await send_delta(delta, self.on_delta)
                except Exception as error:
                    raise _ListenerError(error) from error


def _cut_chain(error: BaseException, secrets: Sequence[str]) -> None:
    """Take out of the chain of an error what quotes a secret: `raise ... from None` leaves it in `__context__`."""
    seen = {id(error)}
    todo, forms = [error], [form for secret in secrets for form in spellings(secret)]
    while forms and todo:
        at = todo.pop()
        for name in ("__cause__", "__context__"):
            other = getattr(at, name)
            if other is None or id(other) in seen:
                continue
            sent = getattr(getattr(other, "request", None), "headers", {})
            texts = "\n".join((str(other), repr(other), repr(vars(other)), *sent.values()))
            if any(form in texts for form in forms):
                setattr(at, name, None)
            else:
                seen.add(id(other))
                todo.append(other)


def model_secrets(model: object) -> tuple[str, ...]:
    """Return what a model sends that must not be shown, so that it can be masked: its key, and values of headers."""
    if isinstance(model, EndpointModel):
        return model._secrets()
    return tuple([secret for inner in getattr(model, "models", ()) for secret in model_secrets(inner)])
