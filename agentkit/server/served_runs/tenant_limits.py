"""`TenantLimits`: how often a tenant may ask, how much at once, and what its runs may use a day."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from agentkit.ground.threads import in_thread
from agentkit.models.model import NO_USAGE, Usage
from agentkit.runs.run_store import RunStore
from agentkit.runs.usage_counts import DayUsage
from agentkit.server.access import Caller
from agentkit.server.server_errors import QuotaExceeded, ServerFull
from agentkit.server.server_options import ServerOptions

__all__ = ["TenantLimits", "today"]

_log = logging.getLogger("agentkit.server")


def today() -> str:
    """Return the date in UTC, such as 2026-11-22."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


class _Bucket:
    """Requests that a tenant may still send: it fills up evenly."""

    __slots__ = ("at", "left")

    def __init__(self, left: float, at: float) -> None:
        self.left = left
        self.at = at


class TenantLimits:
    """Counts what tenants ask for.

    Args:
        options: What the server allows.
        store: Where usage is counted, so that a quota holds over restarts.
    """

    def __init__(self, options: ServerOptions, store: RunStore) -> None:
        self._options = options
        self._store = store
        self._buckets: dict[str, _Bucket] = {}
        self._running: Counter[str] = Counter()
        self._all = 0
        self._used: dict[str, tuple[str, Usage]] = {}
        """Per tenant: the day, and what was used on it."""
        self._unwritten: dict[tuple[str, str], tuple[int, Usage]] = {}
        self._writing: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        """Requests that run agents now."""
        return self._all

    def admit(self, caller: Caller) -> None:
        """Count a request.

        Raises:
            QuotaExceeded: The tenant sent too many within a minute.
        """
        per_minute = caller.allowed.requests_per_minute or self._options.requests_per_minute
        now, rate = time.monotonic(), per_minute / 60
        most = max(1.0, rate)
        bucket = self._buckets.get(caller.tenant)
        if bucket is None:
            bucket = self._buckets[caller.tenant] = _Bucket(most, now)
        bucket.left = min(most, bucket.left + (now - bucket.at) * rate)
        bucket.at = now
        if bucket.left < 1:
            wait = (1 - bucket.left) / rate
            raise QuotaExceeded(
                f"the tenant {caller.tenant!r} may send {per_minute:.15g} requests a minute: wait {wait:.1f} seconds",
                code="rate_limit_exceeded",
                retry_after=wait,
            )
        bucket.left -= 1

    @asynccontextmanager
    async def running_one(self, caller: Caller) -> AsyncIterator[None]:
        """Run an agent for a tenant until the end of the block.

        Raises:
            QuotaExceeded: The tenant runs too many at once, or has used what it may use today.
            ServerFull: The server runs too many.
        """
        most = caller.allowed.concurrent or self._options.concurrent_per_tenant
        if self._running[caller.tenant] >= most:
            raise QuotaExceeded(
                f"the tenant {caller.tenant!r} has {most} requests under way, the most it may have: wait for one",
                code="concurrency_limit_exceeded",
                retry_after=1.0,
            )
        if self._all >= self._options.concurrent:
            raise ServerFull("the server runs as many agents as it may: try again", code="overloaded", retry_after=1.0)
        self._running[caller.tenant] += 1
        self._all += 1
        try:
            await self.check_quota(caller)
            yield
        finally:
            self._all -= 1
            self._running[caller.tenant] -= 1
            if not self._running[caller.tenant]:
                del self._running[caller.tenant]

    async def check_quota(self, caller: Caller) -> None:
        """Refuse a run of a tenant that has used what it may use today.

        Raises:
            QuotaExceeded: It has.
        """
        tokens, money = caller.allowed.tokens_per_day, caller.allowed.money_per_day
        if tokens is None and money is None:
            return
        used = await self._today(caller.tenant)
        spent = used.input_tokens + used.output_tokens
        if tokens is not None and spent >= tokens:
            what = f"{spent:,} of its {tokens:,} tokens"
        elif money is not None and (used.money or 0.0) >= money:
            what = f"{used.money:.2f} of its {money:.2f} US dollars"
        else:
            return
        now = datetime.now(UTC)
        left = 86_400 - (now.hour * 3600 + now.minute * 60 + now.second)
        raise QuotaExceeded(
            f"the tenant {caller.tenant!r} has used {what} of today (UTC)", code="insufficient_quota", retry_after=left
        )

    def used(self, tenant: str, usage: Usage, *, has_ended: bool = True) -> None:
        """Count what a run of a tenant used, and the run once it has ended; it is written soon, by a thread."""
        day = today()
        known = self._used.get(tenant)
        if known is not None and known[0] == day:
            self._used[tenant] = (day, known[1] + usage)
        runs, sum_ = self._unwritten.get((tenant, day), (0, NO_USAGE))
        self._unwritten[tenant, day] = runs + has_ended, sum_ + usage
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def written(self) -> None:
        """Wait until all that was counted is written."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        """Write what was counted; what comes meanwhile is written at once then."""
        while counted := self._unwritten:
            self._unwritten = {}
            try:
                await in_thread(self._write_all, counted)
            except Exception:
                _log.exception("what %d tenants used could not be written", len(counted))

    def _write_all(self, counted: Mapping[tuple[str, str], tuple[int, Usage]]) -> None:
        for (tenant, day), (runs, usage) in counted.items():
            self._store.usage.add(tenant, day, usage, runs)

    async def _today(self, tenant: str) -> Usage:
        day = today()
        known = self._used.get(tenant)
        if known is None or known[0] != day:
            await self.written()
            found = (await in_thread(self._store.usage.of, tenant, since=day)).get(day, DayUsage(0, NO_USAGE)).usage
            known = self._used.setdefault(tenant, (day, found))
            if known[0] != day:
                known = self._used[tenant] = (day, found)
        return known[1]
