from agentkit_memory import *
