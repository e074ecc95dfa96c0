from agentkit.agent.fact_extraction import FoundFacts as FoundFacts
from agentkit.agent.fact_extraction import fact_extractor as fact_extractor
from agentkit.agent.fact_extraction import fact_layers as fact_layers
from agentkit_memory import *
