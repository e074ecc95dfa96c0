from agentkit_prompts.errors import PrompterError as PrompterError
from agentkit_prompts.prompters.presets import AlpacaPrompter as AlpacaPrompter
from agentkit_prompts.prompters.presets import ChatPrompter as ChatPrompter
from agentkit_prompts.prompters.presets import EmptyPrompter as EmptyPrompter
from agentkit_prompts.prompters.prompter import LAZYLLM_SYSTEM as LAZYLLM_SYSTEM
from agentkit_prompts.prompters.prompter import Prompter as Prompter
