"""Endpoints of agents, usage, health and metrics."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from agentkit.ground.threads import in_thread
from agentkit.runs.executor import Executor
from agentkit.runs.open_runs import open_runs
from agentkit.runs.run_errors import RunStoreError
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Access, Caller
from agentkit.server.endpoints.exchange import JSONAnswer
from agentkit.server.endpoints.http_endpoint import Endpoint
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.event_form import usage_form
from agentkit.server.served_runs.run_measures import Metric, stored_metrics
from agentkit.server.served_runs.tenant_limits import TenantLimits, today

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the histogram of seconds."""
_EMPTY_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


class Measures:
    """Counts of requests for `/metrics`, by path and status, with the seconds until the answer started."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.bucket_counts: dict[str, list[int]] = {}
        self.sums: defaultdict[str, float] = defaultdict(float)

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            method: The HTTP method.
            path: Template of the route, such as `/runs/{run}`, so that metrics have no time series per name.
            status: The status of the answer.
            seconds: Seconds until the answer started.
        """
        self.requests[method, path, status] += 1
        counts = self.bucket_counts.setdefault(path, [0] * (len(_BUCKETS) + 1))
        counts[bisect_left(_BUCKETS, seconds)] += 1
        self.sums[path] += seconds

    def metrics(self) -> Iterator[Metric]:
        """Yield the counts."""
        requests = Metric("requests_total", "counter", "Requests answered.")
        for (method, path, status), count in sorted(self.requests.items()):
            requests.add(count, method=method, path=path, status=str(status))
        yield requests
        seconds = Metric("request_seconds", "histogram", "Seconds until an answer started.")
        for path, counts in sorted(self.bucket_counts.items()):
            seconds.add_histogram(_BUCKETS, counts, self.sums[path], path=path)
        yield seconds


class OperationEndpoints:
    """The endpoints of agents, usage, health, metrics and the OpenAPI document.

    Args:
        agents: The agents.
        access: The tokens.
        runs: Executor of the runs.
        store: Store of the runs and their usage.
        limits: Counts of requests and usage per tenant.
        measures: Counts for `/metrics`.
        description: Returns the OpenAPI document.
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
        self._started_at = time.time()
        self.is_closing = False

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints."""
        return [
            Endpoint("GET", "/agents", self.agents, "The agents", "read"),
            Endpoint("GET", "/agents/{agent}", self.agent, "An agent", "read"),
            Endpoint("GET", "/agents/{agent}/schema", self.schema, "JSON Schema of the additional kwargs", "read"),
            Endpoint("GET", "/usage", self.usage, "Usage of the tenant per day", "read"),
            Endpoint("GET", "/healthz", self.health, "Liveness of the process", None),
            Endpoint("GET", "/readyz", self.ready, "Readiness of the server", None),
            Endpoint("GET", "/metrics", self.metrics, "Metrics for Prometheus", "metrics", media_type="text/plain"),
            Endpoint("GET", "/openapi.json", self.description, "The OpenAPI document", None),
        ]

    async def agents(self, request: Request, caller: Caller) -> Response:
        """List agents."""
        del request
        return JSONAnswer({"agents": [self._agent_json(name, caller) for name in self._agents.names(caller)]})

    async def agent(self, request: Request, caller: Caller) -> Response:
        """Describe an agent."""
        return JSONAnswer(self._agent_json(request.path_params["agent"], caller))

    def _agent_json(self, name: str, caller: Caller) -> dict[str, Any]:
        loaded = self._agents.get(name, caller, "agent")
        return {
            "name": loaded.name,
            "description": loaded.description,
            "version": loaded.version or None,
            "versions": [
                {"version": version.agent.definition.version.id, "share": share}
                for version, share in zip(self._agents.versions(name), self._agents.shares(name), strict=True)
            ],
            "tools": [
                {"name": tool.name, "approval": tool.policy.approval != "never"} for tool in loaded.agent.tools.values()
            ],
            "schema": self._schema(name, caller),
        }

    async def schema(self, request: Request, caller: Caller) -> Response:
        """Return the merged schema of the additional kwargs."""
        return JSONAnswer(self._schema(request.path_params["agent"], caller))

    def _schema(self, name: str, caller: Caller) -> dict[str, Any]:
        return dict(self._agents.get(name, caller, "agent").agent.additional_kwargs_schema or _EMPTY_SCHEMA)

    async def usage(self, request: Request, caller: Caller) -> Response:
        """Return the usage of the tenant."""
        del request
        await self._limits.wait_written()
        usage = await in_thread(self._store.usage.of, caller.tenant)
        days = [{"day": day, "runs": runs, **usage_form(used)} for day, (runs, used) in usage.items()]
        return JSONAnswer({"tenant": caller.tenant, "days": days})

    async def health(self, request: Request, caller: Caller) -> Response:
        """Return 200 while the process runs."""
        del request, caller
        return JSONAnswer({"status": "ok"})

    async def ready(self, request: Request, caller: Caller) -> Response:
        """Return 200 if the store can be read, the access file is valid and the server is not stopping, else 503."""
        del request, caller
        problems: list[str] = []
        if self.is_closing:
            problems.append("the server is stopping")
        # Without a ready server, no other request may come that reads a corrected file.
        self._access.refresh()
        if self._access.problem is not None:
            problems.append("the access file is invalid; the tokens that it still contains keep their previous rights")
        try:
            await in_thread(self._store.usage.of, "", since=today())
        except Exception:
            problems.append("the store of the runs cannot be read")
        if problems:
            return JSONAnswer({"status": "not ready", "problems": problems}, 503)
        return JSONAnswer({"status": "ok", "problems": []})

    async def metrics(self, request: Request, caller: Caller) -> Response:
        """Return metrics in the text format of Prometheus."""
        del request, caller
        metrics = [*self._measures.metrics(), *self._limits.measures.metrics()]
        for name, description, value in (
            ("requests_running", "Requests that run agents now.", self._limits.running),
            ("runs_live", "Running and queued background runs of this server.", self._runs.live),
            ("up_seconds", "Seconds since the start of the server.", time.time() - self._started_at),
        ):
            metrics.append(Metric(name, "gauge", description))
            metrics[-1].add(value)
        store_up = Metric("store_up", "gauge", "1 if the store of the runs can be read; without it, no metric of it.")
        try:
            stored = await in_thread(open_runs, self._store.database)
            metrics += stored_metrics(stored, [loaded.name for loaded in self._agents])
            store_up.add(1)
        except RunStoreError:
            # The other metrics are needed most while the database does not respond.
            store_up.add(0)
        metrics.append(store_up)
        text = "\n".join([line for metric in metrics for line in metric.lines()])
        return PlainTextResponse(text + "\n", media_type="text/plain; version=0.0.4")

    async def description(self, request: Request, caller: Caller) -> Response:
        """Return the OpenAPI document."""
        del request, caller
        return JSONAnswer(self._description())
