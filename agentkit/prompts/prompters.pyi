from agentkit_prompts.prompters import *
