"""Check of the hosts of media in messages: the names must not have addresses inside the own network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from ipaddress import ip_address

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media, Url
from agentkit_prompts.errors import InContextError
from agentkit_prompts.public_addresses import is_public

__all__ = ["MediaHosts"]

_MAX_HOSTS = 10_000
"""Maximum number of remembered hosts."""


class MediaHosts:
    """Hosts of media that were checked, so that each name is looked up once."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        """Reason of the refusal by host; empty for an allowed host."""

    async def check(self, messages: Iterable[Message]) -> None:
        """Check the hosts of all media in messages that a server would fetch.

        Raises:
            InContextError: A host has an address that is not public.
        """
        for message in messages:
            for part in message.parts:
                if isinstance(part, Media) and isinstance(part.source, Url) and part.source.host:
                    await self._check(part.source.host)

    async def _check(self, host: str) -> None:
        if host not in self._reasons:
            if len(self._reasons) >= _MAX_HOSTS:
                self._reasons.clear()
            self._reasons[host] = await _refusal(host)
        reason = self._reasons[host]
        if reason:
            raise InContextError(f"the address of media at {host} is refused: {reason}", name="media", value=host)


async def _refusal(host: str) -> str:
    """Return the reason to refuse a host; "" for an allowed host."""
    try:
        entries = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), None)
    except (OSError, UnicodeError):
        # Behind a proxy, this machine cannot look up public names. A name without an address leads to no inner host.
        return ""
    inner = [str(entry[4][0]) for entry in entries if not is_public(ip_address(entry[4][0]))]
    if not inner:
        return ""
    return f"{inner[0]} is not on the public internet; pass data, or allow_media=True (agentkit eval: --allow-media)"
