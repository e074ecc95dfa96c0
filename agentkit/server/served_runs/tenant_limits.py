"""`TenantLimits`: limits of request rate, concurrency and daily usage per tenant."""

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
from agentkit.runs.run_record import RunRecord
from agentkit.runs.run_store import RunStore
from agentkit.runs.usage_counts import DayUsage
from agentkit.server.access import Caller
from agentkit.server.served_runs.run_measures import RunMeasures
from agentkit.server.server_errors import QuotaExceeded, ServerFull
from agentkit.server.server_options import ServerOptions

_log = logging.getLogger("agentkit.server")


def today() -> str:
    """Return the date in UTC, such as 2026-11-22."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


class _Bucket:
    """Number of requests that a tenant may still send; it refills evenly."""

    __slots__ = ("at", "left")

    def __init__(self, left: float, at: float) -> None:
        self.left = left
        self.at = at


class TenantLimits:
    """Counts requests and usage of tenants, and refuses requests over their limits.

    Args:
        options: Limits of the server.
        store: Store of the usage, so that a quota survives restarts.

    Attributes:
        measures: Counts for `/metrics`.
    """

    def __init__(self, options: ServerOptions, store: RunStore) -> None:
        self._options = options
        self._store = store
        self._buckets: dict[str, _Bucket] = {}
        self.measures = RunMeasures()
        self._running: Counter[str] = Counter()
        self._used: dict[str, tuple[str, Usage]] = {}
        """The last day with its usage, by tenant."""
        self._unwritten: dict[tuple[str, str], tuple[int, Usage]] = {}
        self._writing: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        """Requests that run agents now."""
        return self._running.total()

    def admit(self, caller: Caller) -> None:
        """Count a request.

        Raises:
            QuotaExceeded: The tenant exceeded its rate limit.
        """
        per_minute = caller.allowed.requests_per_minute or self._options.requests_per_minute
        now, rate = time.monotonic(), per_minute / 60
        # A slow rate still permits one request at once.
        capacity = max(1.0, rate)
        bucket = self._buckets.get(caller.tenant)
        if bucket is None:
            bucket = self._buckets[caller.tenant] = _Bucket(capacity, now)
        bucket.left = min(capacity, bucket.left + (now - bucket.at) * rate)
        bucket.at = now
        if bucket.left < 1:
            wait = (1 - bucket.left) / rate
            raise QuotaExceeded(
                f"the tenant {caller.tenant!r} exceeded {per_minute:.15g} requests per minute: wait {wait:.1f} seconds",
                code="rate_limit_exceeded",
                retry_after=wait,
            )
        bucket.left -= 1

    @asynccontextmanager
    async def running_one(self, caller: Caller) -> AsyncIterator[None]:
        """Count a request that runs an agent until the end of the block.

        Raises:
            QuotaExceeded: The tenant has too many concurrent requests, or exceeded its quota of today.
            ServerFull: The server has too many concurrent requests.
        """
        # The limit of the tenant first: its error is about its own requests, and not about other tenants.
        limit = caller.allowed.concurrent or self._options.concurrent_per_tenant
        if self._running[caller.tenant] >= limit:
            raise QuotaExceeded(
                f"the tenant {caller.tenant!r} has {limit} concurrent requests, the maximum: wait for a request to "
                "finish",
                code="concurrency_limit_exceeded",
                retry_after=1.0,
            )
        if self.running >= self._options.concurrent:
            raise ServerFull(
                "the server has its maximum of concurrent requests: retry", code="overloaded", retry_after=1.0
            )
        # Counted before the quota is read, which waits for a thread: other requests must see this request.
        self._running[caller.tenant] += 1
        try:
            await self.check_quota(caller)
            yield
        finally:
            self._running[caller.tenant] -= 1
            # Without entries for idle tenants, the counter does not grow.
            if not self._running[caller.tenant]:
                del self._running[caller.tenant]

    async def check_quota(self, caller: Caller) -> None:
        """Check the daily quota of a tenant.

        Raises:
            QuotaExceeded: The tenant exceeded its quota of today.
        """
        tokens, money = caller.allowed.tokens_per_day, caller.allowed.money_per_day
        if tokens is None and money is None:
            return
        usage = await self._usage_today(caller.tenant)
        used_tokens = usage.input_tokens + usage.output_tokens
        if tokens is not None and used_tokens >= tokens:
            quota = f"{used_tokens:,} of its {tokens:,} tokens"
        elif money is not None and (usage.money or 0.0) >= money:
            quota = f"{usage.money:.2f} of its {money:.2f} US dollars"
        else:
            return
        now = datetime.now(UTC)
        seconds_left = 86_400 - (now.hour * 3600 + now.minute * 60 + now.second)
        raise QuotaExceeded(
            f"the tenant {caller.tenant!r} has used {quota} of today (UTC)",
            code="insufficient_quota",
            retry_after=seconds_left,
        )

    def add_run(self, record: RunRecord, usage: Usage) -> None:
        """Count the usage of a run since it was counted before, and the run if it has ended.

        A thread writes the counts soon.
        """
        self.measures.count(record, usage)
        self._add(record.tenant, usage, has_ended=record.has_ended)

    def add_call(self, tenant: str, agent: str, usage: Usage) -> None:
        """Count the usage of a model call without a run, such as of a question in the inspector."""
        self.measures.count_usage(agent, usage)
        self._add(tenant, usage, has_ended=False)

    def _add(self, tenant: str, usage: Usage, *, has_ended: bool) -> None:
        day = today()
        last = self._used.get(tenant)
        if last is not None and last[0] == day:
            self._used[tenant] = (day, last[1] + usage)
        runs, total = self._unwritten.get((tenant, day), (0, NO_USAGE))
        self._unwritten[tenant, day] = runs + has_ended, total + usage
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def wait_written(self) -> None:
        """Wait until the current counts are written."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        # Counts that arrive during a write are written together by the next one.
        while counts := self._unwritten:
            self._unwritten = {}
            try:
                await in_thread(self._write_all, counts)
            except Exception:
                _log.exception("the usage of %d tenants could not be written", len(counts))

    def _write_all(self, counts: Mapping[tuple[str, str], tuple[int, Usage]]) -> None:
        for (tenant, day), (runs, usage) in counts.items():
            self._store.usage.add(tenant, day, usage, runs)

    async def _usage_today(self, tenant: str) -> Usage:
        day = today()
        last = self._used.get(tenant)
        if last is not None and last[0] == day:
            return last[1]
        await self.wait_written()
        days = await in_thread(self._store.usage.of, tenant, since=day)
        usage = days.get(day, DayUsage(0, NO_USAGE)).usage
        # A concurrent request may have read the same day and counted more since: its value wins.
        last = self._used.get(tenant)
        if last is not None and last[0] == day:
            return last[1]
        self._used[tenant] = (day, usage)
        return usage
