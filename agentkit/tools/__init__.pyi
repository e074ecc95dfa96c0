from agentkit_tools import *
