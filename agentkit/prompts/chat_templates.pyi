from agentkit_prompts.chat_templates import *
