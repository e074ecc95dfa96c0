from agentkit_prompts import *
