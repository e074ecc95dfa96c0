"""`Webhook`: an address that receives a signed request when a run has ended or waits for a decision."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator

from agentkit.errors import AgentDefinitionError, UnknownOption
from agentkit.ground.threads import in_thread
from agentkit.runs.run_errors import RunNotFound
from agentkit.runs.run_notices import Notice, RunNotices
from agentkit.runs.run_store import RunStore
from agentkit.server.endpoints.runs_api import run_form
from agentkit_prompts.options import Text, options

if TYPE_CHECKING:
    from httpx2 import AsyncClient

__all__ = ["Webhook", "WebhookSender"]

_log = logging.getLogger("agentkit.server")
_Event = Literal["finished", "failed", "cancelled", "waiting"]
_EVENTS: tuple[_Event, ...] = get_args(_Event)
_PREFIX = "whsec_"
_PAUSES = (5.0, 60.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 36_000.0)
"""Seconds between the attempts to deliver a notice; after the last attempt, the notice is given up."""
_CLAIM_SECONDS = 60.0
_REQUEST_SECONDS = 15.0
_REGISTER_SECONDS = 3_600.0
_GONE = 410
"""Status with which a receiver refuses all further attempts."""


def _address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an address such as https://example.com/hooks")
    if parts.username or parts.password:
        raise ValueError("expected an address without a password: receivers check the signature")
    return text


def _secret(text: str) -> str:
    try:
        key = _key_of(text)
    except binascii.Error:
        raise ValueError("expected base64 after whsec_") from None
    if len(key) < 16:
        raise ValueError("expected a secret of at least 16 bytes, such as from `openssl rand -base64 32`")
    return text


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
    events: tuple[_Event, ...] = _EVENTS
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


class WebhookSender:
    """Sender of the notices about runs to webhooks. All servers on a database share the notices.

    Args:
        webhooks: The webhooks.
        store: Store of the runs.
        pause: Seconds between two looks for due notices.

    Raises:
        AgentDefinitionError: Two webhooks have the same address and tenant.
    """

    def __init__(self, webhooks: Sequence[Webhook], store: RunStore, *, pause: float = 1.0) -> None:
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
        """Send notices until the task is cancelled."""
        from httpx2 import AsyncClient

        async with AsyncClient(timeout=_REQUEST_SECONDS, follow_redirects=False) as client:
            while True:
                try:
                    if time.monotonic() > self._registered_at + _REGISTER_SECONDS:
                        await self.open()
                    notices = await in_thread(self._notices.claim, list(self._webhooks), _CLAIM_SECONDS)
                    await asyncio.gather(*[self._send(client, notice) for notice in notices])
                except Exception:
                    _log.exception("notices to webhooks could not be sent")
                await asyncio.sleep(self._pause)

    async def _send(self, client: AsyncClient, notice: Notice) -> None:
        webhook = self._webhooks[notice.hook]
        try:
            body = await in_thread(self._body, notice)
        except RunNotFound:
            # The run was deleted in the meantime, such as by an erasure.
            await in_thread(self._notices.remove, notice.number)
            return
        headers = webhook.headers(f"{notice.run}.{notice.number}", body, time.time())
        try:
            response = await client.post(webhook.url, content=body, headers=headers)
            problem = f"status {response.status_code}"
            is_delivered, is_gone = response.is_success, response.status_code == _GONE
        except Exception as error:
            problem, is_delivered, is_gone = type(error).__name__, False, False
        host = urlsplit(webhook.url).hostname
        if is_delivered:
            await in_thread(self._notices.remove, notice.number)
        elif is_gone or notice.attempts >= len(_PAUSES):
            _log.error("webhook of %s: run %s: %s; given up", host, notice.run, problem)
            await in_thread(self._notices.remove, notice.number)
        else:
            seconds = _PAUSES[notice.attempts]
            _log.warning("webhook of %s: run %s: %s; again in %g s", host, notice.run, problem, seconds)
            await in_thread(self._notices.postpone, notice.number, seconds)

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
