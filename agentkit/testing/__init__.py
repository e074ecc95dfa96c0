"""Test helpers for prompts and agents.

Golden files of compositions, attacks on roles, scripted models that fail on request, recordings of real models, a block
on real models, controlled time, the effects of a run, a probe of the store of a memory, and hypothesis strategies for
random contexts and prompt trees.

`from agentkit.testing import strategies` requires hypothesis; the other helpers have no requirements.
"""

from typing import TYPE_CHECKING

from agentkit.models.http.no_real_models import no_real_models
from agentkit.models.offline.offline_model import OfflineModel
from agentkit.models.offline.scripted_model import CutOff, Delayed, ScriptedModel
from agentkit.testing.controlled_time import Clock, controlled_time
from agentkit.testing.forgery import ATTACKS, CANARY, ForgeryFound, assert_no_forged_roles
from agentkit.testing.golden import UPDATE, assert_golden, golden_text
from agentkit.testing.recorded_model import RecordedModel, ReplayError, ReplayModel
from agentkit.testing.run_effects import assert_effects, assert_no_tool_errors, effects
from agentkit.testing.store_probe import StoreProbe
from agentkit_prompts import lazy

# Type checkers report unknown names themselves, unless they see this function.
if not TYPE_CHECKING:
    __getattr__, _, _ = lazy.exports(__name__, {})

__all__ = [
    "ATTACKS",
    "CANARY",
    "UPDATE",
    "Clock",
    "CutOff",
    "Delayed",
    "ForgeryFound",
    "OfflineModel",
    "RecordedModel",
    "ReplayError",
    "ReplayModel",
    "ScriptedModel",
    "StoreProbe",
    "assert_effects",
    "assert_golden",
    "assert_no_forged_roles",
    "assert_no_tool_errors",
    "controlled_time",
    "effects",
    "golden_text",
    "no_real_models",
]
