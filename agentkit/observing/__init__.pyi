from agentkit.observing.observation import Observation as Observation
from agentkit.observing.observation import observe as observe
from agentkit.observing.redaction import Redact as Redact
