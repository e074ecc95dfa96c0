"""`FairPlaces`: places for background runs, shared between tenants."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairPlaces:
    """A limited number of places. A free place goes to the waiting tenant with the fewest occupied places.

    Of several such tenants, the tenant that got its last place first is next.

    Args:
        places: Number of places.
        per_tenant: Maximum places of a tenant, so that a run of another tenant finds a place at once.
    """

    def __init__(self, places: int, per_tenant: int) -> None:
        self._free = places
        self._per_tenant = per_tenant
        self._occupied: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting runs by tenant."""
        self._assigned = 0
        """Number of assigned places so far."""
        self._last: dict[str, int] = {}
        """Number of the last place of each tenant that occupies a place or waits."""

    @asynccontextmanager
    async def place(self, tenant: str) -> AsyncIterator[None]:
        """Occupy a place during the block; wait until it is free."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        self._assign()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave_queue(tenant, turn)
            else:
                self._release(tenant)
            raise
        try:
            yield
        finally:
            self._release(tenant)

    def _assign(self) -> None:
        """Assign the free places to waiting runs."""
        while self._free:
            tenants = [tenant for tenant in self._waiting if self._occupied[tenant] < self._per_tenant]
            if not tenants:
                return
            tenant = min(tenants, key=self._priority)
            turn = self._waiting[tenant][0]
            self._leave_queue(tenant, turn)
            if turn.cancelled():
                continue
            self._free -= 1
            self._assigned += 1
            self._occupied[tenant] += 1
            self._last[tenant] = self._assigned
            turn.set_result(None)

    def _priority(self, tenant: str) -> tuple[int, int]:
        return self._occupied[tenant], self._last.get(tenant, 0)

    def _leave_queue(self, tenant: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(tenant)
        if turns is None or turn not in turns:
            return
        turns.remove(turn)
        if not turns:
            del self._waiting[tenant]
            self._forget_idle(tenant)

    def _forget_idle(self, tenant: str) -> None:
        """Delete the number of the last place of a tenant that occupies no place and does not wait."""
        if tenant not in self._occupied and tenant not in self._waiting:
            self._last.pop(tenant, None)

    def _release(self, tenant: str) -> None:
        self._free += 1
        self._occupied[tenant] -= 1
        # Without entries for idle tenants, the counters do not grow.
        if not self._occupied[tenant]:
            del self._occupied[tenant]
            self._forget_idle(tenant)
        self._assign()
