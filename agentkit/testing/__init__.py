"""A kit for testing prompts: golden compositions, an attack on roles, and strategies for random contexts and trees.

`from agentkit.testing import strategies` needs hypothesis; the rest needs nothing.
"""

from agentkit.testing.forgery import ATTACKS, CANARY, assert_no_forged_roles
from agentkit.testing.golden import UPDATE, assert_golden, golden_text

__all__ = ["ATTACKS", "CANARY", "UPDATE", "assert_golden", "assert_no_forged_roles", "golden_text"]
