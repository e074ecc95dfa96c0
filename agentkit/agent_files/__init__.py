"""Agents in files: `agent.yaml`, its validation and its JSON Schema; or `module:agent` of a Python module."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.agent_files.agent_file_error": "AgentFileError",
        "agentkit.agent_files.agent_loading": "load_agent",
        "agentkit.agent_files.loaded_agent": "LoadedAgent",
        "agentkit.agent_files.shared_memories": "SharedMemories",
    },
)
