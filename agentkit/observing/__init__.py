"""OpenTelemetry for all runs of a process: `observe`."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.observing.observation": "Observation observe",
        "agentkit.observing.redaction": "Redact",
    },
)
