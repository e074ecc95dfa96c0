"""A kit for testing prompts and agents.

Golden compositions, an attack on roles, models that fail on cue, recorded exchanges with real ones and a bar to these,
controlled time, the effects of a run, a probe of the store of a memory, and strategies for random contexts and trees.

`from agentkit.testing import strategies` needs hypothesis; the rest needs nothing.
"""

from typing import TYPE_CHECKING

from agentkit.models.http.no_real_models import no_real_models
from agentkit.models.offline.offline_model import OfflineModel
from agentkit.models.offline.scripted_model import CutOff, Delayed, ScriptedModel
from agentkit.testing.controlled_time import Clock, controlled_time
from agentkit.testing.forgery import ATTACKS, CANARY, ForgeryFound, assert_no_forged_roles
from agentkit.testing.golden import UPDATE, assert_golden, golden_text
from agentkit.testing.recorded_model import RecordedModel, ReplayError, ReplayModel
from agentkit.testing.run_effects import assert_effects, effects
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
    "controlled_time",
    "effects",
    "golden_text",
    "no_real_models",
]
