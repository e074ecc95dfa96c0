"""What agents need, what tenants used, and how the server is."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from agentkit.ground.threads import in_thread
from agentkit.runs.executor import Executor
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Access, Caller
from agentkit.server.endpoints.exchange import JSONAnswer
from agentkit.server.endpoints.http_endpoint import Endpoint
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.event_form import usage_form
from agentkit.server.served_runs.tenant_limits import TenantLimits, today

__all__ = ["Measures", "OperationEndpoints"]

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


class Measures:
    """Counts requests for `/metrics`: by path and status, and how long they took until their answer began."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.seconds: dict[str, list[int]] = {}
        self.sums: defaultdict[str, float] = defaultdict(float)

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request. `path` is that of the route, so that names in it make no new series."""
        self.requests[method, path, status] += 1
        counts = self.seconds.setdefault(path, [0] * (len(_BUCKETS) + 1))
        counts[next((at for at, most in enumerate(_BUCKETS) if seconds <= most), len(_BUCKETS))] += 1
        self.sums[path] += seconds

    def lines(self) -> list[str]:
        """Return the counts in the text format of Prometheus."""
        lines = ["# HELP agentkit_requests_total Requests answered.", "# TYPE agentkit_requests_total counter"]
        for (method, path, status), count in sorted(self.requests.items()):
            lines.append(f'agentkit_requests_total{{method="{method}",path="{path}",status="{status}"}} {count}')
        lines += [
            "# HELP agentkit_request_seconds Seconds until an answer began.",
            "# TYPE agentkit_request_seconds histogram",
        ]
        for path, counts in sorted(self.seconds.items()):
            total = 0
            for most, count in zip((*map(str, _BUCKETS), "+Inf"), counts, strict=True):
                total += count
                lines.append(f'agentkit_request_seconds_bucket{{path="{path}",le="{most}"}} {total}')
            lines.append(f'agentkit_request_seconds_sum{{path="{path}"}} {self.sums[path]:.6f}')
            lines.append(f'agentkit_request_seconds_count{{path="{path}"}} {total}')
        return lines


class OperationEndpoints:
    """The endpoints of those who build on the server, and of those who run it.

    Args:
        agents: The agents.
        access: The tokens.
        runs: What runs.
        store: Where usage is counted.
        limits: Counts.
        measures: Counts for `/metrics`.
        description: Returns the OpenAPI description.
    """

    def __init__(
        self,
        agents: ServedAgents,
        access: Access,
        runs: Executor,
        store: RunStore,
        limits: TenantLimits,
        measures: Measures,
        description: Callable[[], dict[str, Any]],
    ) -> None:
        self._agents = agents
        self._access = access
        self._runs = runs
        self._store = store
        self._limits = limits
        self._measures = measures
        self._description = description
        self._began = time.time()
        self.is_closing = False

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints."""
        return [
            Endpoint("GET", "/agents", self.agents, "The agents", "read"),
            Endpoint("GET", "/agents/{agent}", self.agent, "An agent", "read"),
            Endpoint("GET", "/agents/{agent}/schema", self.schema, "What its prompts require of an input", "read"),
            Endpoint("GET", "/usage", self.usage, "What the tenant used, per day", "read"),
            Endpoint("GET", "/healthz", self.health, "Whether the process answers", None),
            Endpoint("GET", "/readyz", self.ready, "Whether it can do its work", None),
            Endpoint("GET", "/metrics", self.metrics, "Counts, for Prometheus", "metrics", media="text/plain"),
            Endpoint("GET", "/openapi.json", self.description, "This description", None),
        ]

    async def agents(self, request: Request, caller: Caller) -> Response:
        """List agents."""
        del request
        return JSONAnswer({"agents": [self._form(name, caller) for name in self._agents.names(caller)]})

    async def agent(self, request: Request, caller: Caller) -> Response:
        """Describe an agent."""
        return JSONAnswer(self._form(request.path_params["agent"], caller))

    def _form(self, name: str, caller: Caller) -> dict[str, Any]:
        loaded = self._agents.get(name, caller)
        return {
            "name": loaded.name,
            "description": loaded.description,
            "version": loaded.version or None,
            "tools": [
                {"name": tool.name, "approval": tool.policy.approval != "never"} for tool in loaded.agent.tools.values()
            ],
            "schema": self._schema(name, caller),
        }

    async def schema(self, request: Request, caller: Caller) -> Response:
        """Return the merged schema of the additional kwargs."""
        return JSONAnswer(self._schema(request.path_params["agent"], caller))

    def _schema(self, name: str, caller: Caller) -> dict[str, Any]:
        return dict(self._agents.get(name, caller).agent.additional_kwargs_schema or _NOTHING)

    async def usage(self, request: Request, caller: Caller) -> Response:
        """Return what the tenant used."""
        del request
        await self._limits.written()
        days = await in_thread(self._store.usage.of, caller.tenant)
        found = [{"day": day, "runs": runs, **usage_form(usage)} for day, (runs, usage) in days.items()]
        return JSONAnswer({"tenant": caller.tenant, "days": found})

    async def health(self, request: Request, caller: Caller) -> Response:
        """Answer."""
        del request, caller
        return JSONAnswer({"status": "ok"})

    async def ready(self, request: Request, caller: Caller) -> Response:
        """Answer 200 where the store can be read, tokens are those of the file, and the server is not stopping."""
        del request, caller
        problems = ["the server is stopping"] if self.is_closing else []
        if self._access.problem is not None:
            problems.append("the access file is broken; the tokens before it are in use")
        try:
            await in_thread(self._store.usage.of, "", since=today())
        except Exception:
            problems.append("the store of the runs cannot be read")
        return JSONAnswer({"status": "not ready" if problems else "ok", "problems": problems}, 503 if problems else 200)

    async def metrics(self, request: Request, caller: Caller) -> Response:
        """Return counts."""
        del request, caller
        lines = self._measures.lines()
        for name, what, value in (
            ("requests_running", "Requests that run agents now.", self._limits.running),
            ("runs_live", "Background runs that go on, or wait for room.", self._runs.live),
            ("up_seconds", "Seconds since the server began.", round(time.time() - self._began, 3)),
        ):
            lines += [f"# HELP agentkit_{name} {what}", f"# TYPE agentkit_{name} gauge", f"agentkit_{name} {value}"]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    async def description(self, request: Request, caller: Caller) -> Response:
        """Return the OpenAPI description."""
        del request, caller
        return JSONAnswer(self._description())
