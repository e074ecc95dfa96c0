from agentkit.agent_files.agent_file_error import AgentFileError as AgentFileError
from agentkit.agent_files.agent_loading import load_agent as load_agent
from agentkit.agent_files.loaded_agent import LoadedAgent as LoadedAgent
from agentkit.agent_files.shared_memories import SharedMemories as SharedMemories
