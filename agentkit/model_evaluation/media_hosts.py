"""Check of the addresses of media in messages: they must not lead into the own network, also not by a redirect."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media, Url
from agentkit_prompts.errors import InContextError
from agentkit_prompts.public_addresses import is_public_host
from agentkit_tools.errors import ToolError
from agentkit_tools.ready.addresses import AddressUnreachable
from agentkit_tools.ready.http_tool import RedirectCheck

_MAX_ADDRESSES = 10_000
"""Maximum number of remembered addresses."""
_MAX_SECONDS = 10.0
"""Maximum seconds of the check of an address."""
_ADVICE = "pass data, or allow_media=True (agentkit eval: --allow-media)"


class MediaHosts:
    """Addresses of media that were checked, so that each address is checked once.

    Args:
        networks: Allowed networks that are not public.
    """

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._redirects = RedirectCheck(networks)
        self._reasons: dict[str, str] = {}
        """Reason of the refusal by address; empty for an allowed address."""

    async def check(self, messages: Iterable[Message]) -> None:
        """Check the addresses of all media in messages that a server would fetch.

        Raises:
            InContextError: An address, or an address to which it redirects, is not public.
        """
        for message in messages:
            for part in message.parts:
                if isinstance(part, Media) and isinstance(part.source, Url) and part.source.host:
                    await self._check(str(part.source), part.source.host)

    async def _check(self, address: str, host: str) -> None:
        if address not in self._reasons:
            if len(self._reasons) >= _MAX_ADDRESSES:
                self._reasons.clear()
            self._reasons[address] = await self._refusal(address)
        reason = self._reasons[address]
        if reason:
            raise InContextError(
                f"the address of media at {host} is refused: {reason}; {_ADVICE}", name="media", value=host
            )

    async def _refusal(self, address: str) -> str:
        """Return the reason to refuse an address; "" for an allowed address."""
        try:
            async with asyncio.timeout(_MAX_SECONDS):
                await self._redirects.check(address)
        except AddressUnreachable as error:
            # Behind a proxy, this machine cannot look up public names, or reach public addresses.
            if not is_public_host(error.host):
                return f"it redirects to {error.host}, which is not on the public internet"
        except TimeoutError:
            return ""
        except ToolError as error:
            return str(error)
        return ""
