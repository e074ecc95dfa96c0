"""Embeddings of OpenAI, and of servers with OpenAI's protocol, through the official SDK."""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import finalize

from agentkit_memory.errors import EmbedderError, EmbedderUnavailable
from agentkit_prompts.credentials import BareAddress, masked
from agentkit_prompts.errors import brief, check_types
from agentkit_prompts.extras import install

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI

_NO_KEY = "no-key"
_MIN_SECRET = 8
"""Minimum characters of a key that is masked in messages: a shorter key is a placeholder, part of common words."""

_MAX_SECONDS = 86_400
"""Maximum seconds of a timeout."""


class OpenAIEmbedder:
    """Requests vectors from an `/embeddings` endpoint.

    The SDK retries after 408, 409, 429, 5xx and connection errors, with growing pauses or as the server demands.

    Args:
        name: Name of the model at the endpoint.
        dimensions: Length of the vectors, for models that can shorten them.
        api_key: Key of the endpoint; by default OPENAI_API_KEY. With a base URL and no key, a placeholder is sent.
        base_url: Address of the endpoint; by default OPENAI_BASE_URL. Both variables are read at the first request.
        client: Client to use instead; the caller closes it.
        timeout: Maximum seconds of a request.
        question_timeout: Maximum seconds of a request for a question, at most `timeout`. Such a request is not retried:
            if it fails, the recall continues without a vector.
        max_retries: Maximum retries of a request for texts of items.
    """

    def __init__(
        self,
        name: str = "text-embedding-3-small",
        *,
        dimensions: int | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        client: OpenAI | None = None,
        timeout: float = 60.0,
        question_timeout: float = 2.0,
        max_retries: int = 4,
    ) -> None:
        check_types(
            EmbedderError,
            "OpenAIEmbedder",
            name=(name, str, "the name of a model"),
            dimensions=(dimensions, (int, type(None)), "a whole number"),
            api_key=(api_key, (str, type(None)), "text"),
            base_url=(base_url, (str, type(None)), "an address"),
            max_retries=(max_retries, int, "a whole number"),
        )
        wrong = [
            f"{option}={brief(seconds)} must be a number of seconds above 0"
            for option, seconds in (("timeout", timeout), ("question_timeout", question_timeout))
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _MAX_SECONDS
        ]
        if wrong:
            raise EmbedderError(f"OpenAIEmbedder: {'; '.join(wrong)}, at most {_MAX_SECONDS:,}")
        self._name = name
        self._dimensions = dimensions
        self._api_key = api_key
        self._base_url = base_url
        self._client = client
        self._timeout = timeout
        self.question_timeout = min(timeout, question_timeout)
        """Seconds that a recall waits for the vector of its question."""
        self._max_retries = max_retries
        self._lock = Lock()

    @property
    def model(self) -> str:
        """Name of the vectors: `openai:MODEL`, with `@DIMENSIONS` if the vectors are shortened."""
        return f"openai:{self._name}" + (f"@{self._dimensions}" if self._dimensions else "")

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in order, in one request.

        Raises:
            EmbedderUnavailable: The endpoint cannot be reached, is slow or fails, or the SDK is not installed.
            EmbedderError: The endpoint refuses the request, or the answer is invalid.
        """
        return self._request(texts, self._timeout, self._max_retries)

    def embed_query(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per question, in order, within `question_timeout` and without retries, as `embed` does."""
        return self._request(texts, self.question_timeout, 0)

    def _request(self, texts: Sequence[str], timeout: float, retries: int) -> list[list[float]]:
        client = self._connected()
        import openai

        size = openai.omit if self._dimensions is None else self._dimensions
        # Endpoints refuse empty texts.
        inputs = [text or " " for text in texts]
        refused: EmbedderError
        try:
            configured = client.with_options(timeout=timeout, max_retries=retries)
            answer = configured.embeddings.create(model=self._name, input=inputs, dimensions=size)
            rows = {row.index: list(row.embedding) for row in answer.data}
            return [rows[number] for number in range(len(inputs))]
        except openai.APIConnectionError as error:
            # A timeout is an `APIConnectionError` too.
            cause = error.__cause__ or error
            raise self._unavailable(f"cannot be reached ({type(cause).__name__}: {cause})") from error
        except openai.APIStatusError as error:
            refused = self._refused(error)
        except (openai.OpenAIError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise EmbedderError(
                f"model {self.model!r} at {self._host(client)}: the answer is not one vector for each of {len(inputs)} "
                f"texts ({type(error).__name__}: {str(error)[:200]}); check that the address serves OpenAI's protocol",
                name=self.model,
                value=type(error).__name__,
            ) from error
        # Raised outside of the `except` block: the error of the SDK, which may quote the key, must not be the context.
        raise refused

    def _connected(self) -> OpenAI:
        with self._lock:
            if self._client is None:
                self._client = self._new_client()
            return self._client

    def _new_client(self) -> OpenAI:
        try:
            from openai import DefaultHttpxClient, OpenAI
        except ImportError as error:
            raise EmbedderUnavailable(
                f"model {self.model!r}: needs the openai SDK: {install('openai')}", name="openai"
            ) from error
        address = self._base_url or os.environ.get("OPENAI_BASE_URL")
        key = (self._api_key or os.environ.get("OPENAI_API_KEY") or "").strip()
        if not key and not address:
            raise EmbedderUnavailable(
                f"model {self.model!r}: missing API key: set OPENAI_API_KEY (or pass api_key=), or set "
                "OPENAI_BASE_URL (base_url=) to the address of a server that needs none",
                name="OPENAI_API_KEY",
            )
        if address and not _is_address(address):
            raise EmbedderError(
                f"model {self.model!r}: base_url (OPENAI_BASE_URL) must be an address such as "
                f"http://localhost:8000/v1, without query or fragment, got something else of {len(address)} characters;"
                " it is not shown, as it may be a key",
                name="base_url",
            )
        if not address:
            return OpenAI(api_key=key, base_url=address)
        bare = BareAddress.of(address)
        http_client = None
        if bare.auth is not None:
            http_client = DefaultHttpxClient(auth=bare.auth)
            # The SDK closes only clients that it created.
            finalize(self, http_client.close)
        return OpenAI(api_key=key or _NO_KEY, base_url=bare.url, http_client=http_client)

    def _refused(self, error: APIStatusError) -> EmbedderError:
        client = self._connected()
        message = " ".join(str(error.message).split())
        if len(client.api_key) >= _MIN_SECRET:
            message = masked(message, [client.api_key])
        message = message[:300]
        status = error.status_code
        if status in (408, 409, 429) or status >= 500:
            return self._unavailable(f"failed ({message})")
        if status in (401, 403):
            return self._unavailable(
                f"refused ({message}): set OPENAI_API_KEY or api_key= to a key that may use this model"
            )
        if status == 404:
            return self._unavailable(
                f"answered {message}: check the name of the model, and that the address ends with /v1"
            )
        return EmbedderError(f"model {self.model!r} at {self._host(client)}: {message}", name=self.model)

    def _unavailable(self, problem: str) -> EmbedderUnavailable:
        return EmbedderUnavailable(
            f"model {self.model!r}: {self._host(self._connected())} {problem}; stored items are queued, and found with "
            "BM25 meanwhile",
            name=self.model,
        )

    @staticmethod
    def _host(client: OpenAI) -> str:
        return str(client.base_url.netloc.decode("ascii").rpartition("@")[2])


def _is_address(text: str) -> bool:
    """Return True if a text is an http address without a query or a fragment, which may contain a secret."""
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        # An unfinished IPv6 address, or a port that is not a number.
        return False
    return is_address and "?" not in text and "#" not in text
