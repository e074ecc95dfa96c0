"""Agents in files: `agent.yaml`, its checks and its schema; a Python module `module:agent` in its place."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.agent_files.agent_loading": "AgentFileError load_agent",
        "agentkit.agent_files.loaded_agent": "LoadedAgent",
        "agentkit.agent_files.shared_memories": "SharedMemories",
    },
)
