"""Code mode, and sandboxes for code of models and skills."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.agent.code_mode": "code_mode",
        "agentkit_tools.sandboxes.monty_sandbox": "MontySandbox",
        "agentkit_tools.sandboxes.process_sandbox": "ProcessSandbox",
        "agentkit_tools.sandboxes.sandbox": (
            "AnswerCalls Sandbox SandboxAnswer SandboxCall SandboxError SandboxJob SandboxLimits SandboxResult "
            "SandboxUnavailable"
        ),
    },
)
