"""Durable runs: runs that outlive their process, on any number of workers. See `Runs` for the example of a server."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.durable.durable_errors": "RunCancelled RunFailed RunIdTaken WorkerError",
        "agentkit.durable.mapping": "MapReport",
        "agentkit.durable.run_archive": "ArchivedRun read_archive",
        "agentkit.durable.run_costs": "RunCost",
        "agentkit.durable.run_handle": "RunHandle",
        "agentkit.durable.runs_facade": "Runs",
        "agentkit.durable.schedules": "ScheduleInfo",
        "agentkit.runs.run_errors": "DatabaseDamaged DatabaseUnavailable DurableError RunNotFound",
        "agentkit.runs.run_record": "RunRecord WaitingCall",
    },
)
