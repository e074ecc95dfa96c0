"""Simulation of many workers, and plans for many users, from the costs that `costs.py` measures.

    python benchmarks/scale.py plot docs/scale.svg [--seconds 600]
    python benchmarks/scale.py plan

The simulation has discrete events: a run waits for a place of a worker, then alternates between the processor of its
worker, the database and the model. Times are seconds, unless a name has another unit.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import simpy
from page_plots import GREY, pyplot, save

Events: TypeAlias = Generator[Any, Any, None]


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of a durable run and of stored things on PostgreSQL, measured by `costs.py --postgres`."""

    steps: int = 3
    """Model calls of a run."""
    cpu: float = 0.042
    """CPU time of a run in its worker."""
    statements: int = 43
    """SQL statements of a run."""
    statement: float = 0.000_15
    """Time of one processor of the database server for a statement; an assumption."""
    run_bytes: int = 18_300
    turn_bytes: int = 1_480
    turn_index_bytes: int = 545
    chunk_bytes: int = 2_740
    chunk_index_bytes: int = 1_430
    user_bytes: int = 1_560


@dataclass(frozen=True, slots=True)
class Plan:
    """A simulated system and its traffic."""

    rate: Callable[[float], float]
    """Runs per second at a time."""
    workers: Callable[[float], int] = lambda now: 4
    """Number of workers at a time."""
    concurrency: int = 100
    """Places of a worker."""
    database_cores: int = 8
    model: float = 1.5
    """Median time of a model call; the times are log-normal."""
    big_tenant: float = 0.0
    """Share of the runs that belong to one tenant; the other runs belong to 100 tenants."""
    tenant_places: int | None = None
    """Maximum number of concurrent runs of a tenant; see `tenant_concurrency` of a worker."""
    outage: tuple[float, float] | None = None
    """Start and end of a time without the database. Clients try again within a second after it."""
    seconds: float = 600.0
    costs: Costs = field(default_factory=Costs)


@dataclass(frozen=True, slots=True)
class Done:
    """A finished run."""

    begin: float
    tenant: int
    """0: the big tenant."""
    wait: float
    """Time in the queue."""
    total: float


class Simulation:
    """One simulated system."""

    def __init__(self, plan: Plan, seed: int = 1) -> None:
        self.plan = plan
        self.done: list[Done] = []
        self._env = simpy.Environment()
        self._draw = random.Random(seed)
        self._database = simpy.Resource(self._env, plan.database_cores)
        self._queue: deque[tuple[float, int]] = deque()
        self._active: Counter[int] = Counter()  # runs of each tenant
        self._workers: list[simpy.Resource] = []
        self._loads: list[int] = []
        self._env.process(self._arrivals())
        self._env.process(self._scaling())

    def run(self) -> list[Done]:
        """Simulate the time of the plan, and return the finished runs, and the runs that still wait."""
        self._env.run(until=self.plan.seconds)
        waits = [(begin, tenant, self.plan.seconds - begin) for begin, tenant in self._queue]
        return [*self.done, *[Done(begin, tenant, wait, wait) for begin, tenant, wait in waits]]

    def _arrivals(self) -> Events:
        plan = self.plan
        top = max(plan.rate(at) for at in range(int(plan.seconds)))
        while True:
            yield self._env.timeout(self._draw.expovariate(top))
            if self._draw.random() < plan.rate(self._env.now) / top:
                tenant = 0
                if self._draw.random() >= plan.big_tenant:
                    tenant = self._draw.randint(1, 100)
                self._env.process(self._arrival(tenant))

    def _arrival(self, tenant: int) -> Events:
        begin = self._env.now
        if self._is_away():
            assert self.plan.outage is not None
            yield self._env.timeout(self.plan.outage[1] - begin + self._draw.random())
        self._queue.append((begin, tenant))
        self._fill()

    def _scaling(self) -> Events:
        """Add workers at once; a removed worker finishes its runs."""
        while True:
            wanted = self.plan.workers(self._env.now)
            while len(self._workers) < wanted:
                self._workers.append(simpy.Resource(self._env, 1))
                self._loads.append(0)
            self._fill()
            yield self._env.timeout(1.0)

    def _fill(self) -> None:
        """Give free places to runs in the queue, the oldest first, without runs of tenants that have no free place."""
        available = min(self.plan.workers(self._env.now), len(self._workers))
        while self._queue and not self._is_away():
            worker = min(range(available), key=lambda at: self._loads[at])
            if self._loads[worker] >= self.plan.concurrency:
                return
            run = self._next()
            if run is None:
                return
            begin, tenant = run
            self._loads[worker] += 1
            self._active[tenant] += 1
            self._env.process(self._execute(worker, begin, tenant))

    def _next(self) -> tuple[float, int] | None:
        places = self.plan.tenant_places
        if places is None:
            return self._queue.popleft()
        for at, (_, tenant) in enumerate(self._queue):
            if self._active[tenant] < places:
                run = self._queue[at]
                del self._queue[at]
                return run
        return None

    def _execute(self, worker: int, begin: float, tenant: int) -> Events:
        plan, wait = self.plan, self._env.now - begin
        for _ in range(plan.costs.steps):
            with self._workers[worker].request() as processor:
                yield processor
                yield self._env.timeout(plan.costs.cpu / plan.costs.steps)
            yield self._env.process(self._store())
            yield self._env.timeout(plan.model * self._draw.lognormvariate(0.0, 0.5))
        self._loads[worker] -= 1
        self._active[tenant] -= 1
        self.done.append(Done(begin, tenant, wait, self._env.now - begin))
        self._fill()

    def _store(self) -> Events:
        """Execute the statements of a step. Without the database, a step waits for it."""
        if self._is_away():
            assert self.plan.outage is not None
            yield self._env.timeout(self.plan.outage[1] - self._env.now)
        with self._database.request() as connection:
            yield connection
            yield self._env.timeout(self.plan.costs.statements / self.plan.costs.steps * self.plan.costs.statement)

    def _is_away(self) -> bool:
        outage = self.plan.outage
        return outage is not None and outage[0] <= self._env.now < outage[1]


def capacity(plan: Plan) -> float:
    """Return the runs per second of the workers at time 0, without a limit by the database."""
    model = plan.model * 1.13  # the mean of the log-normal times
    places = plan.concurrency / (plan.costs.steps * model + plan.costs.cpu)
    return plan.workers(0.0) * min(places, 1 / plan.costs.cpu)


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile; 0 without values."""
    if not values:
        return 0.0
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def constant(value: Any) -> Callable[[float], Any]:
    return lambda now: value


# The plot


def waits_by_load(seconds: float) -> dict[int, list[tuple[float, float]]]:
    """Return the 99th percentile of the waiting time by load, for some numbers of workers."""
    curves: dict[int, list[tuple[float, float]]] = {}
    for workers in (1, 4, 8):
        plan = Plan(rate=constant(1.0), workers=constant(workers), seconds=min(seconds, 200.0))
        limit = capacity(plan)
        curves[workers] = []
        for load in (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1):
            runs = Simulation(replace(plan, rate=constant(load * limit))).run()
            curves[workers].append((load, quantile([run.wait for run in runs], 0.99)))
    return curves


def by_minute(runs: Sequence[Done], of: Callable[[Done], bool] = lambda run: True) -> list[tuple[float, float]]:
    """Return the 99th percentile of the waiting time of the runs that began in each 20 seconds."""
    groups: dict[int, list[float]] = {}
    for run in runs:
        if of(run):
            groups.setdefault(int(run.begin // 20), []).append(run.wait)
    return [(20.0 * group, quantile(waits, 0.99)) for group, waits in sorted(groups.items())]


def workers_added(seconds: float) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Return the waits while the load doubles, with four workers, and with four further workers two minutes later."""
    base = Plan(rate=constant(1.0), seconds=seconds)
    limit = capacity(base)

    def rate(now: float) -> float:
        return limit * (1.4 if 0.2 * seconds < now < 0.5 * seconds else 0.7)

    plan = replace(base, rate=rate)

    def more(now: float) -> int:
        return 8 if 0.2 * seconds + 120 < now < 0.8 * seconds else 4

    return by_minute(Simulation(plan).run()), by_minute(Simulation(replace(plan, workers=more)).run())


def big_tenant(seconds: float) -> dict[str, list[tuple[float, float]]]:
    """Return the waits of the small tenants while one tenant sends half of a load that is too high."""
    base = Plan(rate=constant(1.0), big_tenant=0.5, seconds=seconds)
    limit = capacity(base)

    def rate(now: float) -> float:
        return limit * (1.3 if 0.2 * seconds < now < 0.5 * seconds else 0.6)

    plan = replace(base, rate=rate)
    places = plan.workers(0.0) * plan.concurrency // 3
    return {
        "no limit": by_minute(Simulation(plan).run(), lambda run: run.tenant != 0),
        f"tenant_concurrency={places}": by_minute(
            Simulation(replace(plan, tenant_places=places)).run(), lambda run: run.tenant != 0
        ),
    }


def outage(seconds: float) -> dict[str, list[tuple[float, float]]]:
    """Return the waits around 30 seconds without the database, for two loads."""
    base = Plan(rate=constant(1.0), outage=(0.3 * seconds, 0.3 * seconds + 30), seconds=seconds)
    limit = capacity(base)
    return {
        f"{load:.0%} load": by_minute(Simulation(replace(base, rate=constant(load * limit))).run())
        for load in (0.6, 0.9)
    }


def write_plot(file: str, seconds: float) -> None:
    """Write the plot of all simulations as SVG."""
    plot = pyplot()
    plot.rcParams |= {"font.size": 9, "axes.grid": True, "grid.color": GREY, "grid.alpha": 0.3}
    figure, ((load, added), (tenant, lost)) = plot.subplots(2, 2, figsize=(8.5, 6.5), layout="constrained")
    for workers, curve in waits_by_load(seconds).items():
        load.plot([100 * x for x, _ in curve], [y for _, y in curve], marker="o", label=f"workers: {workers}")
    load.set(title="Wait in the queue by load", xlabel="load in % of the places", ylabel="99th percentile, s")
    load.set_yscale("symlog", linthresh=0.1)
    four, eight = workers_added(seconds)
    for name, curve in (("4 workers", four), ("8 workers after two minutes", eight)):
        added.plot([x for x, _ in curve], [y for _, y in curve], label=name)
    added.set(title="The load doubles to 140 % for a while", xlabel="time, s", ylabel="99th percentile, s")
    for name, curve in big_tenant(seconds).items():
        tenant.plot([x for x, _ in curve], [y for _, y in curve], label=name)
    tenant.set(title="Other tenants, while one sends half of 130 %", xlabel="time, s", ylabel="99th percentile, s")
    for name, curve in outage(seconds).items():
        lost.plot([x for x, _ in curve], [y for _, y in curve], label=name)
    lost.set(title="30 s without the database", xlabel="time, s", ylabel="99th percentile, s")
    load.legend(loc="upper left", frameon=False)
    for axes in (added, tenant, lost):
        axes.set_ylim(top=1.4 * axes.get_ylim()[1])  # place for the legend above the curves
        axes.legend(loc="upper right", frameon=False)
    save(figure, Path(file))


# Plans


@dataclass(frozen=True, slots=True)
class Use:
    """Behaviour of users, and prices in US dollars; assumptions to replace by the figures of a product."""

    active: float = 0.1
    """Share of the users that are active on a day."""
    runs: float = 5.0
    """Runs of an active user per day."""
    turns: float = 2.0
    """Stored messages of a run that become items of the memory."""
    chunks: float = 10.0
    """Chunks of documents per user."""
    peak: float = 3.0
    """Load of the busiest hour, in multiples of the mean."""
    run_days: int = 30
    """Days for which runs and their journals are kept."""
    turn_days: int = 365
    utilisation: float = 0.6
    """Share of processors and places that is used at the peak."""
    core_month: float = 30.0
    database_core_month: float = 60.0
    gigabyte_month: float = 0.12
    model_call: float = 0.002
    """Price of a model call."""


def plan_rows(use: Use, costs: Costs, users: Sequence[int]) -> list[list[str]]:
    """Return the rows of the table of plans, one column per number of users."""
    rows: dict[str, list[str]] = {}

    def add(name: str, value: str) -> None:
        rows.setdefault(name, []).append(value)

    for number in users:
        runs_per_day = number * use.active * use.runs
        peak = runs_per_day / 86_400 * use.peak
        turns = runs_per_day * use.turns * use.turn_days
        run_bytes = runs_per_day * use.run_days * costs.run_bytes
        memory_bytes = turns * costs.turn_bytes + number * (costs.user_bytes + use.chunks * costs.chunk_bytes)
        index_bytes = turns * costs.turn_index_bytes + number * use.chunks * costs.chunk_index_bytes
        cores = peak * costs.cpu / use.utilisation
        concurrent = peak * costs.steps * 1.7
        workers = max(1, round(max(cores, concurrent / 100 / use.utilisation) + 0.5))
        database_cores = max(2, round(peak * costs.statements * costs.statement / use.utilisation + 0.5))
        gigabytes = (run_bytes + memory_bytes + index_bytes) / 1e9
        add("Runs per second at the peak", f"{peak:,.2f}")
        add("Runs at once at the peak", f"{concurrent:,.0f}")
        add("SQL statements per second at the peak", f"{peak * costs.statements:,.0f}")
        add("Workers with 100 places", f"{workers:,}")
        add("Processors of the database", f"{database_cores:,}")
        add("Connections of workers, at most 10 each", f"{10 * workers:,}")
        add("Runs and journals, GB", f"{run_bytes / 1e9:,.1f}")
        add("Memory in SQL, GB", f"{memory_bytes / 1e9:,.1f}")
        add("Index, GB", f"{index_bytes / 1e9:,.1f}")
        machines = workers * use.core_month + database_cores * use.database_core_month
        add("Machines and disks, US dollars per month", f"{machines + gigabytes * use.gigabyte_month:,.0f}")
        add("Model calls, US dollars per month", f"{30 * runs_per_day * costs.steps * use.model_call:,.0f}")
    return [[name, *values] for name, values in rows.items()]


def print_plans() -> None:
    """Print the table of plans as Markdown."""
    users = (1_000, 1_000_000, 100_000_000)
    print("| | " + " | ".join(f"{number:,} users" for number in users) + " |")
    print("| --- |" + " ---: |" * len(users))
    for row in plan_rows(Use(), Costs(), users):
        print("| " + " | ".join(row) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=("plot", "plan"))
    parser.add_argument("file", nargs="?", default="docs/scale.svg")
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    if options.work == "plan":
        print_plans()
    else:
        write_plot(options.file, options.seconds)


if __name__ == "__main__":
    main()
