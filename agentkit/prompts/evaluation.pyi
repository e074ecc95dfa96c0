from agentkit_prompts.evaluation import *
