"""`OutputItem`: an item of a response while it is read."""

from __future__ import annotations

from typing import Any

from agentkit.models.http.call_arguments import CallArguments
from agentkit.models.http.piece_joiner import PieceJoiner
from agentkit.models.http.reader import nonempty
from agentkit.models.model import Delta, DeltaKind


class OutputItem:
    """An output item while it is read."""

    __slots__ = ("_arguments", "_texts", "annotations", "data", "is_over", "is_stopped", "position")

    def __init__(self, data: dict[str, Any], position: int) -> None:
        self.data = data
        self.position = position
        """Position of a tool call among the tool calls of the reply."""
        self.is_over = False
        """True if the whole item has arrived."""
        self.is_stopped = False
        """True if the whole response contains the item as unfinished."""
        self.annotations: dict[int, list[Any]] = {}
        """Citations that arrived in their own events, by index of the part."""
        self._arguments = CallArguments()
        self._texts: dict[tuple[str, int], PieceJoiner] = {}
        """Texts from deltas, by kind and index of the part."""

    def is_announced(self, reason: str) -> bool:
        """True for a tool call whose end has not arrived; a cut reply may end in such a call."""
        if self.data.get("type") != "function_call" or self.is_over:
            return False
        if self._arguments and not self.is_stopped:
            return False
        return reason != "length"

    def text(self, kind: str) -> str:
        """Return the joined deltas of a kind."""
        return "".join([piece for (key, _), text in self._texts.items() if key == kind for piece in text.pieces])

    def missing_deltas(self, kind: DeltaKind, whole: str) -> list[Delta]:
        """Return the rest of a whole text of all parts that no delta has contained."""
        size = sum(text.size for (key, _), text in self._texts.items() if key == kind)
        # The length is compared first, because joining the deltas for every repetition is slow.
        if len(whole) <= size or not whole.startswith(self.text(kind)):
            return []
        part = max((part for key, part in self._texts if key == kind), default=0)
        return self.add(kind, part, whole[size:])

    def missing_of_part(self, kind: DeltaKind, part: int, whole: str | dict[str, Any]) -> list[Delta]:
        """Return the rest of a whole text of one part, or of whole arguments, that no delta has contained."""
        if not isinstance(whole, str) or kind == "arguments":
            return self.replace_arguments(whole)
        before = self._texts.get((kind, part))
        if before is None:
            return self.add(kind, part, whole)
        if len(whole) <= before.size or not whole.startswith(str(before)):
            return []
        return self.add(kind, part, whole[before.size :])

    def replace_arguments(self, whole: object) -> list[Delta]:
        """Replace the arguments by the whole arguments, and return the missing delta."""
        return nonempty(self._arguments_delta(self._arguments.replace(whole)))

    def add(self, kind: DeltaKind, part: int, piece: str) -> list[Delta]:
        """Store a piece of text and return its delta."""
        if kind == "arguments":
            return nonempty(self._arguments_delta(self._arguments.add(piece)))
        return nonempty(Delta(self._texts.setdefault((kind, part), PieceJoiner()).append(piece), kind))

    def rest(self) -> list[Delta]:
        """Return the delta that was held back."""
        return nonempty(self._arguments_delta(self._arguments.rest()))

    def _arguments_delta(self, text: str) -> Delta:
        return Delta(text, "arguments", self.position, str(self.data.get("name") or ""))

    def _lacks_text(self) -> bool:
        """True if the item of a message has no text, or only its deltas have text."""
        content = self.data.get("content")
        if not content or not isinstance(content, list):
            return not content
        has_text = any(isinstance(part, dict) and (part.get("text") or part.get("refusal")) for part in content)
        return bool(self._texts) and not has_text

    def content(self) -> dict[str, Any]:
        """Return the item; its deltas replace missing fields."""
        data = self.data
        if data.get("type") == "function_call":
            data["arguments"] = str(self._arguments)
        elif data.get("type") == "message" and self._lacks_text():
            text, refusal = self.text("text"), self.text("refusal")
            data["content"] = []
            if text or not refusal:
                data["content"].append({"type": "output_text", "text": text})
            if refusal:
                data["content"].append({"type": "refusal", "refusal": refusal})
        if self.annotations and isinstance(parts := data.get("content"), list):
            data["content"] = [self._annotated(index, part) for index, part in enumerate(parts)]
        return data

    def _annotated(self, index: int, part: Any) -> Any:
        """Return a part with the citations of its events, unless the part contains its citations."""
        annotations = self.annotations.get(index)
        if not annotations or not isinstance(part, dict) or part.get("annotations"):
            return part
        return {**part, "annotations": annotations}
