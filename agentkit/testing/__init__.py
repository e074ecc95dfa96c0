"""A kit for testing prompts and agents: golden compositions, an attack on roles, a bar to real models, and strategies
for random contexts and trees.

`from agentkit.testing import strategies` needs hypothesis; the rest needs nothing.
"""

from agentkit.models.endpoint import no_real_models
from agentkit.testing.forgery import ATTACKS, CANARY, assert_no_forged_roles
from agentkit.testing.golden import UPDATE, assert_golden, golden_text

__all__ = ["ATTACKS", "CANARY", "UPDATE", "assert_golden", "assert_no_forged_roles", "golden_text", "no_real_models"]
