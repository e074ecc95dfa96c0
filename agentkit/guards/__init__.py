"""Guards of runs: checks of input, replies, tool calls and tool results, and the redaction of personal data."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.errors": "GuardError GuardStopped",
        "agentkit.models.redacting.personal_data": "PersonalText personal_data",
        "agentkit.models.redacting.placeholders": "Detector Redacted",
        "agentkit.models.redacting.redacting_model": "RedactingModel",
        "agentkit.run.parts.run_guards": "Guard GuardCheck guard",
        "agentkit.run.parts.verdicts": "Ask Pass Replace Stop Verdict",
        "agentkit_prompts.composition.untrusted_sources": "SourceKind UntrustedSource",
    },
)
