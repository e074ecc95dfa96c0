"""`Webhook`: an address that receives a signed request when a run has ended or waits for a decision."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator

from agentkit.errors import AgentDefinitionError, UnknownOption
from agentkit.ground.threads import in_thread
from agentkit.runs.run_errors import RunNotFound
from agentkit.runs.run_notices import Notice, RunNotices
from agentkit.runs.run_store import RunStore
from agentkit.server.endpoints.runs_api import run_form
from agentkit_prompts.errors import check_types
from agentkit_prompts.options import Text, options

if TYPE_CHECKING:
    from httpx2 import AsyncClient

_log = logging.getLogger("agentkit.server")
_Event = Literal["finished", "failed", "cancelled", "waiting"]
_EVENTS: tuple[_Event, ...] = get_args(_Event)
_PREFIX = "whsec_"
_PAUSES = (5.0, 60.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 36_000.0)
"""Seconds between the attempts to deliver a notice; after the last attempt, the notice is given up."""
_CLAIM_SECONDS = 60.0
_REQUEST_SECONDS = 15.0
_REGISTER_SECONDS = 3_600.0
_MAX_ADDRESS = 2_000
"""Maximum characters of an address."""
_GONE = 410
"""Status with which a receiver refuses all further attempts."""


def _address(text: str) -> str:
    from httpx2 import URL, InvalidURL

    wrong = ValueError(f"expected an address such as https://example.com/hooks, up to {_MAX_ADDRESS:,} characters")
    if len(text) > _MAX_ADDRESS or re.search(r"\s", text):
        raise wrong
    try:
        URL(text)
        parts = urlsplit(text)
        # Reading the port checks it.
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (InvalidURL, ValueError):
        raise wrong from None
    if not is_valid:
        raise wrong
    if parts.username or parts.password:
        raise ValueError("expected an address without a password: receivers check the signature")
    return text


def _secret(text: str) -> str:
    try:
        key = _key_of(text)
    except binascii.Error:
        raise ValueError("expected base64 after whsec_") from None
    if text != text.strip():
        raise ValueError("expected a secret without spaces and line breaks at its ends")
    if len(key) < 16:
        raise ValueError("expected a secret of at least 16 bytes, such as from `openssl rand -base64 32`")
    return text


def _events(events: tuple[_Event, ...]) -> tuple[_Event, ...]:
    if not events:
        raise ValueError("expected at least one of finished, failed, cancelled, waiting")
    return events


def _key_of(secret: str) -> bytes:
    if secret.startswith(_PREFIX):
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    return secret.encode()


@options(AgentDefinitionError, unknown=UnknownOption, kw_only=False)
class Webhook:
    """An address that receives a POST request when a run has ended or waits for a decision.

    The body is JSON: `type` such as `run.finished`, `timestamp`, `tenant`, and `data`, the run as in `GET /runs/{id}`.
    The headers `webhook-id`, `webhook-timestamp` and `webhook-signature` follow the Standard Webhooks specification:
    the signature is `v1,` and the base64 of the HMAC-SHA256 of `ID.TIMESTAMP.BODY`. A request is repeated with the
    same id for up to 28 hours until its status is 2xx, so a receiver must ignore an id that it has handled.
    Redirects are not followed.

    Raises:
        AgentDefinitionError: A value is invalid. The message lists all of them.
    """

    url: Annotated[str, AfterValidator(_address)]
    """Address of the receiver."""
    secret: Annotated[str, AfterValidator(_secret)] = field(repr=False)
    """Key of the signature: text of at least 16 bytes, or `whsec_` and base64."""
    tenant: Text | None = None
    """Tenant whose runs are reported; None for all tenants."""
    events: Annotated[tuple[_Event, ...], AfterValidator(_events)] = _EVENTS
    """New states of runs that are reported."""

    @property
    def id(self) -> str:
        """Hash of the address and the tenant, equal in all servers."""
        return hashlib.blake2b(json.dumps([self.url, self.tenant]).encode(), digest_size=8).hexdigest()

    def headers(self, message_id: str, body: bytes, now: float) -> dict[str, str]:
        """Return the headers of a request. `now` is in seconds since 1970."""
        seconds = str(int(now))
        signed = b".".join([message_id.encode(), seconds.encode(), body])
        signature = base64.b64encode(hmac.digest(_key_of(self.secret), signed, "sha256")).decode()
        return {
            "content-type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": seconds,
            "webhook-signature": f"v1,{signature}",
        }


class _Problem(NamedTuple):
    """Problem of a request to a webhook."""

    text: str
    is_gone: bool = False
    """True if the receiver refuses all further attempts."""


class WebhookSender:
    """Sender of the notices about runs to webhooks. All servers on a database share the notices.

    Args:
        webhooks: The webhooks.
        store: Store of the runs.
        pause: Seconds between two looks for due notices.

    Raises:
        AgentDefinitionError: A webhook is of another type, or two webhooks have the same address and tenant.
    """

    def __init__(self, webhooks: Sequence[Webhook], store: RunStore, *, pause: float = 1.0) -> None:
        for number, webhook in enumerate(webhooks):
            check_types(AgentDefinitionError, "Server", **{f"webhooks[{number}]": (webhook, Webhook, "a Webhook")})
        self._webhooks = {webhook.id: webhook for webhook in webhooks}
        if len(self._webhooks) < len(webhooks):
            raise AgentDefinitionError("webhooks: two have the same url and tenant: remove one", name="webhooks")
        self._store = store
        self._notices: RunNotices = store.notices
        self._pause = pause
        self._registered_at = 0.0

    async def open(self) -> None:
        """Register the webhooks, so that notices are stored for them."""
        webhooks = self._webhooks.values()
        hooks = {webhook.id: (webhook.tenant, webhook.events) for webhook in webhooks}
        await in_thread(self._notices.register, hooks)
        self._registered_at = time.monotonic()

    async def run(self) -> None:
        """Send notices until the task is cancelled. A slow receiver delays only its own notices."""
        from httpx2 import AsyncClient, Limits

        # Without the limit of 100 connections, which all receivers would share.
        limits = Limits(max_connections=None)
        async with (
            AsyncClient(timeout=_REQUEST_SECONDS, follow_redirects=False, limits=limits) as client,
            asyncio.TaskGroup() as tasks,
        ):
            sending: dict[str, asyncio.Task[None]] = {}
            while True:
                idle = [hook for hook in self._webhooks if hook not in sending or sending[hook].done()]
                for hook, notices in (await self._due(idle)).items():
                    sending[hook] = tasks.create_task(self._send_all(client, notices))
                await asyncio.sleep(self._pause)

    async def _due(self, hooks: list[str]) -> dict[str, list[Notice]]:
        """Return the due notices by webhook; an empty dict if the database reports an error."""
        due: dict[str, list[Notice]] = {}
        try:
            if time.monotonic() > self._registered_at + _REGISTER_SECONDS:
                await self.open()
            for notice in await in_thread(self._notices.claim, hooks, _CLAIM_SECONDS):
                due.setdefault(notice.hook, []).append(notice)
        except Exception:
            _log.exception("notices to webhooks cannot be read")
        return due

    async def _send_all(self, client: AsyncClient, notices: list[Notice]) -> None:
        await asyncio.gather(*[self._send(client, notice) for notice in notices])

    async def _send(self, client: AsyncClient, notice: Notice) -> None:
        webhook = self._webhooks[notice.hook]
        host = urlsplit(webhook.url).hostname
        try:
            problem = await self._attempt(client, webhook, notice)
        except Exception as error:
            problem = _Problem(type(error).__name__)
        try:
            if problem is None:
                await in_thread(self._notices.remove, notice.number)
            elif problem.is_gone or notice.attempts >= len(_PAUSES):
                _log.error("webhook of %s: run %s: %s; given up", host, notice.run, problem.text)
                await in_thread(self._notices.remove, notice.number)
            else:
                seconds = _PAUSES[notice.attempts]
                _log.warning("webhook of %s: run %s: %s; again in %g s", host, notice.run, problem.text, seconds)
                await in_thread(self._notices.postpone, notice.number, seconds)
        except Exception:
            # The notice is due again after its claim has ended.
            _log.exception("webhook of %s: run %s: the result of a request cannot be stored", host, notice.run)

    async def _attempt(self, client: AsyncClient, webhook: Webhook, notice: Notice) -> _Problem | None:
        """Send a notice; return the problem of the request, if any."""
        try:
            body = await in_thread(self._body, notice)
        except RunNotFound:
            # The run was deleted in the meantime, such as by an erasure.
            return None
        headers = webhook.headers(f"{notice.run}.{notice.number}", body, time.time())
        # The body of the answer is not read: it can be endless, and the limit of the client is for each read.
        async with (
            asyncio.timeout(_REQUEST_SECONDS),
            client.stream("POST", webhook.url, content=body, headers=headers) as response,
        ):
            if response.is_success:
                return None
            return _Problem(f"status {response.status_code}", is_gone=response.status_code == _GONE)

    def _body(self, notice: Notice) -> bytes:
        record = self._store.get(notice.run)
        created_at = datetime.fromtimestamp(notice.created_at, UTC).isoformat(timespec="milliseconds")
        message = {
            "type": f"run.{notice.state}",
            "timestamp": created_at,
            "tenant": record.tenant,
            "data": run_form(record),
        }
        return json.dumps(message).encode()
