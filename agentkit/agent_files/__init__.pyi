from agentkit.agent_files.load_agent import AgentFileError as AgentFileError
from agentkit.agent_files.load_agent import LoadedAgent as LoadedAgent
from agentkit.agent_files.load_agent import load_agent as load_agent
from agentkit.agent_files.shared_memories import SharedMemories as SharedMemories
