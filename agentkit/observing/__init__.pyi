from agentkit.observing.observation import Observation as Observation
from agentkit.observing.observation import Redact as Redact
from agentkit.observing.observation import observe as observe
