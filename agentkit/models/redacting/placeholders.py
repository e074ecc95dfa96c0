"""`Placeholders`: replaces personal data in texts of a prompt, and restores it in texts of a reply."""

from __future__ import annotations

import json
import re
from base64 import b32encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

from agentkit.models.redacting.personal_data import PersonalText
from agentkit_prompts.chat_templates.guard.token_marks import parsed_json
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import Segment

Detector: TypeAlias = Callable[[str], Iterable[PersonalText]]
"""Function that returns the personal data of a text."""

_KIND = re.compile(r"[A-Z][A-Z0-9_]{0,19}")
_PLACEHOLDER = re.compile(r"\[[A-Z][A-Z0-9_]{0,19}_[a-z2-7]{10}\]")
_CHARACTER = r"(?:[A-Z0-9_a-z]|\\u00(?!5[bBdD])[0-9a-fA-F]{2})"
"""Character of a placeholder between its brackets in JSON text."""
_IN_JSON = re.compile(rf"(?:\[|(?<!\\)\\u005[bB]){_CHARACTER}{{12,31}}(?:\]|\\u005[dD])")
_START = re.compile(r"\[(?:[A-Z][A-Z0-9_]{0,20}[a-z2-7]{0,10})?\Z")
_START_IN_JSON = re.compile(rf"(?:(?:\[|\\u005[bB]){_CHARACTER}{{0,31}})?(?:\\(?:u[0-9a-fA-F]{{0,3}})?)?\Z")
_OWN = "TEXT"
"""Kind of a text that looks like a placeholder."""


class Redacted(NamedTuple):
    """A text that a placeholder replaces."""

    placeholder: str
    text: str
    kind: str


class Placeholders:
    """Placeholders of personal data, such as `[EMAIL_k3j9x0a2b4]`.

    A placeholder is a keyed hash of its text: it is the same in every prompt, and text of a prompt cannot contain the
    placeholder of another text, because a text that looks like a placeholder is replaced too.

    Args:
        detectors: Functions that find personal data.
        key: Secret of the hash.
        is_everywhere: True to replace also texts of the developer.
    """

    def __init__(self, detectors: Sequence[Detector], key: bytes, *, is_everywhere: bool) -> None:
        self.changes_trusted = is_everywhere
        self._detectors = (_placeholders_in, *detectors)
        self._key = key

    def add(self, text: str, items: set[Redacted]) -> str:
        """Return a text with placeholders; the replaced texts are added to `items`."""
        pieces: list[str] = []
        end = 0
        for finding in self._findings(text):
            redacted = self._redacted(text[finding.start : finding.end], finding.kind)
            items.add(redacted)
            pieces += text[end : finding.start], redacted.placeholder
            end = finding.end
        if not pieces:
            return text
        return "".join([*pieces, text[end:]])

    def add_to_parts(self, texts: Sequence[str], items: set[Redacted]) -> Sequence[str]:
        """Return neighbouring texts with placeholders, also for data that they form together."""
        joined = "".join(texts)
        findings: list[PersonalText] = []
        is_found = bytearray(len(joined))
        start = 0
        for text in texts:
            for own in self._findings(text):
                finding = PersonalText(own.start + start, own.end + start, own.kind)
                is_found[finding.start : finding.end] = b"\1" * (finding.end - finding.start)
                findings.append(finding)
            start += len(text)
        if len(texts) > 1:
            findings += [across for across in self._findings(joined) if not any(is_found[across.start : across.end])]
        findings.sort()
        segments = [Segment(text, trust="untrusted") for text in texts]
        return [segment.text for segment in self._replaced(segments, joined, findings, items)]

    def add_in_name(self, text: str, items: set[Redacted]) -> str:
        """Return the text: ids of calls and names of tools are no personal data, and their digits can look like it."""
        return text

    def add_in_json(self, text: str, items: set[Redacted]) -> str:
        """Return the JSON text of arguments with placeholders in its texts and numbers; other text as in `add`."""
        own: set[Redacted] = set()
        try:
            value, repeats_names = parsed_json(text)
            changed = json.dumps(self._changed(value, own), ensure_ascii=False)
        except (ValueError, RecursionError):
            return self.add(text, items)
        if repeats_names:
            self.add(text, own)
        if not own:
            return text
        items |= own
        return changed

    def _changed(self, value: Any, items: set[Redacted]) -> Any:
        if isinstance(value, str):
            return self.add(value, items)
        if isinstance(value, dict):
            return {self.add(key, items): self._changed(item, items) for key, item in value.items()}
        if isinstance(value, list):
            return [self._changed(item, items) for item in value]
        if isinstance(value, int) and not isinstance(value, bool):
            number = str(value)
            changed = self.add(number, items)
            return value if changed == number else changed
        return value

    def in_rendered(self, rendered: Rendered, items: set[Redacted]) -> Rendered:
        """Return a rendering with placeholders; without `is_everywhere` only for data with an untrusted character."""
        if not self.changes_trusted and rendered.trust == "trusted":
            return rendered
        segments = rendered.segments()
        # Media are no text; their markers have no personal data.
        text = "".join([segment.text if segment.media is None else "\0" * len(segment.text) for segment in segments])
        findings = self._findings(text)
        if not self.changes_trusted and findings:
            trusts = [("1" if segment.trust == "untrusted" else "0") * len(segment.text) for segment in segments]
            untrusted = "".join(trusts)
            findings = [finding for finding in findings if "1" in untrusted[finding.start : finding.end]]
        if not findings:
            return rendered
        return Rendered.from_segments([*self._replaced(segments, text, findings, items)])

    def _replaced(
        self, segments: Sequence[Segment], text: str, findings: Sequence[PersonalText], items: set[Redacted]
    ) -> Iterator[Segment]:
        """Yield the segments with placeholders; a placeholder belongs to the segment in which its text starts."""
        start = number = 0
        for segment in segments:
            end, pieces, at = start + len(segment.text), list[str](), start
            while number < len(findings) and findings[number].start < end:
                finding = findings[number]
                if finding.start >= start:
                    redacted = self._redacted(text[finding.start : finding.end], finding.kind)
                    items.add(redacted)
                    pieces += segment.text[at - start : finding.start - start], redacted.placeholder
                at = min(finding.end, end)
                if finding.end > end:
                    break
                number += 1
            pieces.append(segment.text[at - start :])
            yield segment._replace(text="".join(pieces))
            start = end

    def _findings(self, text: str) -> list[PersonalText]:
        """Return the personal data of a text without overlaps: the first and longest.

        Raises:
            ValueError: A detector returned an invalid finding.
        """
        findings = [finding for detect in self._detectors for finding in detect(text)]
        for finding in findings:
            if not 0 <= finding.start < finding.end <= len(text) or not _KIND.fullmatch(finding.kind):
                raise ValueError(
                    f"a detector returned {finding!r:.80}: expected a start and an end in the text, and a kind of "
                    "capital letters, digits and underscores"
                )
        findings.sort(key=lambda finding: (finding.start, -finding.end))
        end = 0
        separate: list[PersonalText] = []
        for finding in findings:
            if finding.start >= end:
                separate.append(finding)
                end = finding.end
        return separate

    def _redacted(self, text: str, kind: str) -> Redacted:
        # 50 bits: two texts with the same placeholder are as rare as a fault of a disk.
        digest = blake2b(f"{kind}\0{text}".encode("utf-8", "surrogatepass"), key=self._key, digest_size=10).digest()
        return Redacted(f"[{kind}_{b32encode(digest).decode().lower()[:10]}]", text, kind)


class Restoring:
    """Restorer of the texts of placeholders.

    Args:
        texts: Texts by placeholder.
        is_json: True for JSON text, in which a character of a placeholder can be an escape.
    """

    def __init__(self, texts: Mapping[str, str], *, is_json: bool = False) -> None:
        self._texts = texts
        self._is_json = is_json

    def whole(self, text: str) -> str:
        """Return a text with the texts of its placeholders; unknown placeholders stay."""
        if self._is_json:
            return _IN_JSON.sub(self._in_json, text)
        return _PLACEHOLDER.sub(lambda match: self._texts.get(match[0], match[0]), text)

    def _in_json(self, match: re.Match[str]) -> str:
        placeholder = match[0]
        if "\\" in placeholder:
            placeholder = json.loads(f'"{placeholder}"')
        if placeholder not in self._texts:
            return match[0]
        return json.dumps(self._texts[placeholder], ensure_ascii=False)[1:-1]

    def ready(self, text: str) -> int:
        """Return the number of characters that no later piece of a stream can complete to a placeholder."""
        # A placeholder is at most 33 characters long, each at most 6 characters as an escape.
        first = max(0, len(text) - 240)
        match = (_START_IN_JSON if self._is_json else _START).search(text, first)
        if match is None:
            return len(text)
        return match.start()


def _placeholders_in(text: str) -> Iterator[PersonalText]:
    """Yield the texts that look like placeholders."""
    if "[" in text:
        for match in _PLACEHOLDER.finditer(text):
            yield PersonalText(match.start(), match.end(), _OWN)
