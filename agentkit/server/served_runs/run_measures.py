"""`RunMeasures`: counts of ended runs for `/metrics`, and the state of the stored runs."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from agentkit.models.model import Usage
from agentkit.models.model_errors import ModelError
from agentkit.runs.open_runs import OpenRuns
from agentkit.runs.run_record import RunRecord
from agentkit.server.served_runs.public_errors import with_subclasses

_MAX_VERSIONS = 20
"""Maximum number of versions of an agent that are counted separately."""
_OPEN = ("queued", "running", "waiting")
"""States of runs that have not ended."""
_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper bounds of the histogram of the seconds of runs."""
_MAX_ERRORS = 100
"""Maximum number of classes of errors with a time series: code of agents can create classes without end."""
_OTHER = "other"
"""Label of the classes above the maximum, and of agents that this server does not have."""


class Metric:
    """One metric in the text format of Prometheus.

    Args:
        name: Its name without the prefix `agentkit_`.
        kind: `counter`, `gauge` or `histogram`.
        description: One sentence.
    """

    def __init__(self, name: str, kind: str, description: str) -> None:
        self.name = f"agentkit_{name}"
        self._lines = [f"# HELP {self.name} {description}", f"# TYPE {self.name} {kind}"]

    def add(self, value: float, suffix: str = "", /, **labels: str) -> None:
        """Add a sample; `suffix` is the last part of its name, such as `_sum`."""
        text = ",".join([f'{label}="{_escaped(each)}"' for label, each in labels.items()])
        if text:
            text = f"{{{text}}}"
        self._lines.append(f"{self.name}{suffix}{text} {value:.15g}")

    def add_histogram(self, bounds: Sequence[float], counts: Sequence[int], total: float, /, **labels: str) -> None:
        """Add the samples of a histogram.

        Args:
            bounds: Upper bounds of the buckets without the last, which is infinite.
            counts: Number of values in each bucket.
            total: Sum of the values.
            **labels: The labels.
        """
        values = 0
        for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
            values += count
            self.add(values, "_bucket", **labels, le=bound)
        self.add(total, "_sum", **labels)
        self.add(values, "_count", **labels)

    def lines(self) -> list[str]:
        """Return its lines."""
        return self._lines


class RunMeasures:
    """Counts of the runs that this server started or executed, by agent, since its start."""

    def __init__(self) -> None:
        self._ended: Counter[tuple[str, str]] = Counter()
        self._versions: Counter[tuple[str, str, str]] = Counter()
        self._seconds: dict[str, list[int]] = {}
        self._total_seconds: defaultdict[str, float] = defaultdict(float)
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._money: defaultdict[str, float] = defaultdict(float)
        self._errors: Counter[tuple[str, str]] = Counter()
        self._error_types: set[str] = set()

    def count(self, record: RunRecord, usage: Usage) -> None:
        """Count the usage of a run, and the run if it has ended.

        Args:
            record: The run.
            usage: Its usage since it was counted before.
        """
        self.count_usage(record.agent, usage)
        if not record.has_ended:
            return
        self._ended[record.agent, record.state] += 1
        version = record.version
        # Each reload of a changed agent is a version.
        versions = {each for agent, each, _ in self._versions if agent == record.agent}
        if version not in versions and len(versions) >= _MAX_VERSIONS:
            version = _OTHER
        self._versions[record.agent, version, record.state] += 1
        seconds = max(0.0, record.updated_at - record.created_at)
        counts = self._seconds.setdefault(record.agent, [0] * (len(_BUCKETS) + 1))
        counts[bisect_left(_BUCKETS, seconds)] += 1
        self._total_seconds[record.agent] += seconds
        if record.error is not None:
            self.count_error(record.agent, record.error.type)

    def count_usage(self, agent: str, usage: Usage) -> None:
        """Count tokens and money of an agent."""
        for kind, tokens in (
            ("input", usage.input_tokens),
            ("cached", usage.cached_tokens),
            ("output", usage.output_tokens),
            ("reasoning", usage.reasoning_tokens),
        ):
            self._tokens[agent, kind] += tokens
        self._money[agent] += usage.money or 0.0

    def count_error(self, agent: str, error: str) -> None:
        """Count an error that ended a run, or refused a run before its start; `error` is the name of its class."""
        if error not in self._error_types and len(self._error_types) >= _MAX_ERRORS:
            error = _OTHER
        self._error_types.add(error)
        self._errors[agent, error] += 1

    def metrics(self) -> Iterator[Metric]:
        """Yield the counts."""
        ended = Metric("runs_total", "counter", "Runs that ended, by agent and state.")
        for (agent, state), count in sorted(self._ended.items()):
            ended.add(count, agent=agent, state=state)
        yield ended
        versions = Metric("version_runs_total", "counter", "Runs that ended, by agent, version of the agent and state.")
        for (agent, version, state), count in sorted(self._versions.items()):
            versions.add(count, agent=agent, version=version, state=state)
        yield versions
        seconds = Metric("run_seconds", "histogram", "Seconds from the request to the end of a run, with all waits.")
        for agent, counts in sorted(self._seconds.items()):
            seconds.add_histogram(_BUCKETS, counts, self._total_seconds[agent], agent=agent)
        yield seconds
        tokens = Metric("tokens_total", "counter", "Tokens; cached is a part of input, reasoning a part of output.")
        for (agent, kind), count in sorted(self._tokens.items()):
            tokens.add(count, agent=agent, kind=kind)
        yield tokens
        money = Metric("money_total", "counter", "US dollars, for models with known prices.")
        for agent, dollars in sorted(self._money.items()):
            money.add(dollars, agent=agent)
        yield money
        errors = Metric("run_errors_total", "counter", "Errors that ended or refused runs, by class.")
        model_errors = Metric("model_errors_total", "counter", "Errors of models that ended runs, by class.")
        model_error_types = {kind.__name__ for kind in with_subclasses((ModelError,))}
        for (agent, error), count in sorted(self._errors.items()):
            errors.add(count, agent=agent, error=error)
            if error in model_error_types:
                model_errors.add(count, agent=agent, error=error)
        yield errors
        yield model_errors


def stored_metrics(stored: OpenRuns, agents: Iterable[str]) -> Iterator[Metric]:
    """Yield the state of the stored runs, also of the runs of other servers and programs on the same database.

    Args:
        stored: The runs that have not ended.
        agents: Names of the agents of this server; runs of other agents are counted together.
    """
    names = set(agents)
    # A series with the value 0 exists before the first run, so that an alert can compare it.
    counts: Counter[tuple[str, str]] = Counter({(agent, state): 0 for agent in names for state in _OPEN})
    oldest: dict[str, float] = dict.fromkeys(_OPEN, 0.0)
    for group in stored.groups:
        agent = group.agent
        if agent not in names:
            agent = _OTHER
        counts[agent, group.state] += group.runs
        oldest[group.state] = max(oldest[group.state], group.oldest)
    runs = Metric("runs", "gauge", "Stored runs that have not ended, by agent and state.")
    for (agent, state), count in sorted(counts.items()):
        runs.add(count, agent=agent, state=state)
    ages = Metric("oldest_run_seconds", "gauge", "Seconds since the run that is longest in a state changed.")
    for state, seconds in oldest.items():
        ages.add(seconds, state=state)
    waiting = Metric("waiting_calls", "gauge", "Tool calls that wait for a decision.")
    waiting.add(stored.waiting_calls)
    alive = [worker for worker in stored.workers if worker.state == "alive"]
    workers = Metric("workers", "gauge", "Workers of durable runs; the lease of a silent worker has expired.")
    workers.add(sum(worker.is_alive for worker in alive), state="alive")
    workers.add(sum(not worker.is_alive for worker in alive), state="silent")
    silence = Metric("worker_silent_seconds", "gauge", "Maximum seconds since a worker renewed its lease.")
    silence.add(max([worker.silent for worker in alive], default=0.0))
    yield from (runs, ages, waiting, workers, silence)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
