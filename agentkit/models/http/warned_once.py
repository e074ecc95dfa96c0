"""`WarnedOnce`: warnings of a model, each category once."""

from __future__ import annotations

from agentkit_prompts.caller_warnings import warn


class WarnedOnce:
    """Issues each category of warnings once for a model. Copies of the model with other settings share the object."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._categories: list[type[Warning]] = []

    def warn(self, category: type[Warning], text: str) -> None:
        """Issue a warning, unless the model has already issued a warning of this category."""
        if category not in self._categories:
            self._categories.append(category)
            warn(f"model {self._model!r}: {text}", category)
