"""Taint tracking: the untrusted characters of a rendered text, for any chat template.

Untrusted characters that occur in a control token are replaced one to one by private-use characters. Characters that
are replaced in the rendering are untrusted, and a control token that contains such a character is broken.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from agentkit_prompts.chat_templates.guard.control_tokens import ControlTokens, Policy, TokenMatch
from agentkit_prompts.chat_templates.guard.stand_ins import first_difference, with_stand_ins
from agentkit_prompts.chat_templates.guard.tainted_text import (
    Render,
    Segments,
    Tree,
    is_tainted,
    rewrite,
    segments_of,
    untagged,
    unused,
)
from agentkit_prompts.errors import ControlTokenError
from agentkit_prompts.templates.spans import Segment, insert_breaks


def guarded(
    render: Render,
    tree: Tree,
    text: str | None,
    tokens: ControlTokens,
    policy: Literal["escape", "reject"],
    *,
    rewrites: bool,
) -> str:
    """Render `tree` so that no tainted character is part of a control token.

    Args:
        render: Renderer of the template; a pure function of the tree.
        tree: Input of the template; a tree that `is_harmless` needs no guard.
        text: Rendering of the unchanged tree; None if it fails.
        tokens: Control tokens of the template.
        policy: `escape` breaks a token with a zero-width space, `reject` raises.
        rewrites: True if the tokens of the template can depend on a text; they are then checked.

    Raises:
        ControlTokenError: Untrusted text contains a token and the policy is `reject`; or the template changes untrusted
            text in a way that cannot be tracked; or its tokens depend on untrusted text.
    """
    guard = _Guard(render, tokens, policy)
    marked = relevant(tree, tokens)
    followed = None
    if text is not None:
        followed = guard.tracked(marked, text)
    if followed is None:
        # The template depends on the words of a text: break the tokens in each text before rendering.
        marked = guard.escaped(marked)
        text = render(untagged(marked))
        followed = guard.tracked(marked, text) or guard.with_only_its_own(marked, text)
    if followed is None:
        raise ControlTokenError(
            "this chat template depends on untrusted text (or is not deterministic), so its control tokens cannot be "
            "distinguished from tokens in the text; correct the template, remove the text, or pass "
            'control_tokens="allow" if all text is trusted'
        )
    if rewrites:
        check_own_tokens(render, tree, followed.swapped, tokens)
    return followed.text


def check_own_tokens(render: Render, tree: Tree, text: str, tokens: ControlTokens) -> None:
    """Reject a text whose control tokens depend on untrusted text.

    Args:
        render: The template.
        tree: What is rendered, with everything untrusted in it tainted.
        text: Rendering of the tree, without tainted characters in tokens.
        tokens: Control tokens of the template.

    Raises:
        ControlTokenError: Tokens of the template, or the roles after them, depend on untrusted text.
    """
    around = None
    # A template that looks names up fails without them.
    for keeps_names in (False, True):
        around = attempt(render, with_stand_ins(tree, keeps_names=keeps_names))
        if around is not None:
            break
    different, example = None, ""
    if around is not None:
        different = first_difference(tokens, text, around)
        if different is None:
            return
        example = f", such as {different!r},"
    raise ControlTokenError(
        f"this chat template creates control tokens{example} from untrusted text, for example with `replace`, `split` "
        f"or `if`: its tokens differ from the tokens around neutral text; correct the template, remove the text, or "
        f"pass "
        'control_tokens="allow" if all text is trusted',
        name=different,
    )


def broken(render: Render, tree: Tree, text: str, tokens: ControlTokens) -> str | None:
    """Return `text`, the rendering of the tree, with tainted tokens broken; None if the template depends on the
    text.
    """
    followed = _Guard(render, tokens, "escape").broken(relevant(tree, tokens), text, tokens.alphabet)
    if followed is None:
        return None
    return followed.text


def broken_segments(segments: Iterable[Segment], tokens: ControlTokens, *, starts_line: bool) -> str:
    """Return the plain text of segments, with tainted tokens broken, for text that no template changes."""
    table = dict.fromkeys(map(ord, tokens.alphabet), 0)
    before = ""
    if not starts_line:
        # A visible character that no token contains.
        before = "\ufffd"
    text = swapped = before
    for segment in segments:
        plain = segment.plain
        text += plain
        if segment.trust == "untrusted":
            plain = plain.translate(table)
        swapped += plain
    return insert_breaks(text, [cut.at for cut in _cuts(tokens, text, swapped)])[len(before) :]


def is_harmless(tree: Tree, tokens: ControlTokens) -> bool:
    """True if no tainted text can be part of a control token (fast, conservative check)."""
    return not tokens or all(tokens.is_harmless(segment.text) for segment in filter(is_tainted, segments_of(tree)))


def relevant(tree: Tree, tokens: ControlTokens) -> Tree:
    """Return the tree without the taint of texts that cannot be part of a token, because a template can look them
    up.
    """

    def changed(segment: Segment) -> Segment:
        if is_tainted(segment) and not segment.text.isspace() and tokens.is_harmless(segment.text):
            return segment._replace(trust="trusted")
        return segment

    return rewrite(tree, lambda segments: Segments(map(changed, segments)))


def attempt(render: Render, tree: Tree) -> str | None:
    """Return the rendering of a changed tree, or None if the template fails."""
    try:
        return render(tree)
    except Exception:
        return None


class _Cut(NamedTuple):
    """A control token with a tainted character."""

    match: TokenMatch
    tainted: tuple[int, ...]
    """Offsets of its tainted characters."""

    @property
    def at(self) -> int:
        """Offset of the break: after the first character, but never between two trusted characters."""
        return max(self.tainted[0], self.match.start + 1)


class _Followed(NamedTuple):
    """A rendering whose tainted characters are known."""

    text: str
    """Text with tainted tokens broken."""
    swapped: str
    """Text with tainted characters swapped: all its tokens come from the template."""


@dataclass(frozen=True, slots=True)
class _Guard:
    """Steps of `guarded`."""

    render: Render
    tokens: ControlTokens
    policy: Policy

    def tracked(self, tree: Tree, text: str) -> _Followed | None:
        """Return `text`, the rendering of `tree`, with tainted tokens broken; None if taint cannot be tracked."""
        for alphabet in self._alphabets(tree):
            followed = self.broken(tree, text, alphabet)
            if followed is not None:
                return followed
        return None

    def broken(self, tree: Tree, text: str, alphabet: frozenset[str]) -> _Followed | None:
        """Same as `tracked` for a single alphabet."""
        swapped = self._swapped(tree, text, alphabet)
        if swapped is None:
            return None
        cuts = _cuts(self.tokens, text, swapped)
        if cuts and self.policy == "reject":
            self._refuse(self._places(tree, text, cuts))
        return _Followed(insert_breaks(text, [cut.at for cut in cuts]), swapped)

    def escaped(self, tree: Tree) -> Tree:
        """Return the tree with the tokens broken that are inside one text."""
        places: list[tuple[str, str]] = []

        def change(segments: Segments) -> Segments:
            cuts = _cuts(self.tokens.in_json, segments.text, _masked(segments))
            owners = [segment.pointer for segment in segments for _ in segment.text]
            places.extend((cut.match.token, owners[at]) for cut in cuts for at in cut.tainted)
            return _cut(segments, [cut.at for cut in cuts])

        escaped = rewrite(tree, change)
        self._refuse(places)
        return escaped

    def with_only_its_own(self, tree: Tree, text: str) -> _Followed | None:
        """Return `text` if its tokens equal, in order, the tokens around text that cannot form a token; else None."""
        own = [match.token for match in self._in_order(text)]
        for alphabet in self._alphabets(tree):
            swapped, _ = self._redrawn(tree, text, alphabet)
            if swapped is not None and [match.token for match in self._in_order(swapped)] == own:
                return _Followed(text, swapped)
        return None

    def _in_order(self, text: str) -> list[TokenMatch]:
        return sorted(self.tokens.find(text))

    def _alphabets(self, tree: Tree) -> Iterator[frozenset[str]]:
        """Yield the characters to swap: all, or else (which affects fewer templates) the characters that occur in every
        token.
        """
        tokens = self.tokens
        # Swaps affect a template that compares texts, so then only boundary characters are swapped.
        yield tokens.alphabet
        texts = [segment.text for segment in segments_of(tree) if is_tainted(segment)]
        if tokens.telling != tokens.alphabet and not any(map(tokens.fits_inside, texts)):
            yield tokens.telling

    def _redrawn(self, tree: Tree, text: str, alphabet: frozenset[str]) -> tuple[str | None, dict[int, int]]:
        """Return the rendering of the swapped tree, and the swaps."""
        table = _table(tree, text, alphabet)
        return attempt(self.render, _swap(tree, lambda _: table)), table

    def _swapped(self, tree: Tree, text: str, alphabet: frozenset[str]) -> str | None:
        """Return the rendering of the swapped tree if it is `text`, swapped."""
        swapped, table = self._redrawn(tree, text, alphabet)
        if swapped is None or _unswapped(swapped, table) != text:
            return None
        return swapped

    def _places(self, tree: Tree, text: str, cuts: Sequence[_Cut]) -> Iterator[tuple[str, str]]:
        """Yield each token with the places of its tainted characters."""
        texts = _tainted_texts(tree)
        offsets = sorted({at for cut in cuts for at in cut.tainted})
        owners = self._owners(tree, text, offsets, texts)
        for cut in cuts:
            for at in cut.tainted:
                # Without a known owner all places with this character are candidates.
                candidates = [owners[at]] if at in owners else texts
                yield from ((cut.match.token, place) for place in candidates if text[at] in texts[place])

    def _owners(self, tree: Tree, text: str, offsets: Sequence[int], pointers: Iterable[str]) -> dict[int, str]:
        """Return the place of the character at each offset, if known.

        Each place gets separate swaps, which identify it, unless they affect the template.
        """
        # Only characters in tokens get a separate swap per place, because private-use characters are limited.
        needed = sorted({ord(text[at]) for at in offsets})
        free = _free(tree, text)
        tables = {pointer: dict(zip(needed, map(ord, free), strict=False)) for pointer in pointers}
        swapped = attempt(self.render, _swap(tree, lambda segment: tables[segment.pointer]))
        owner_of, back = _reversed(tables)
        if swapped is None or swapped.translate(back) != text:
            return {}
        return {at: owner_of[swapped[at]] for at in offsets if swapped[at] in owner_of}

    def _refuse(self, places: Iterable[tuple[str, str]]) -> None:
        """Raise an error that names every token and its place, if the policy is to reject them."""
        if self.policy != "reject":
            return
        tokens = tuple(dict.fromkeys(places))
        if not tokens:
            return
        listed = "; ".join(f"{token!r} in {pointer}" for token, pointer in tokens)
        raise ControlTokenError(
            f"untrusted text forms control tokens of the chat template: {listed}; remove them, or break them with "
            'control_tokens="escape"',
            tokens,
        )


def _tainted_texts(tree: Tree) -> dict[str, str]:
    """Return a mapping of places to their tainted text."""
    texts = defaultdict[str, str](str)
    for segment in filter(is_tainted, segments_of(tree)):
        texts[segment.pointer] += segment.text
    return texts


def _masked(segments: Segments) -> str:
    """Return the text with NUL characters for the tainted segments."""
    return "".join(["\0" * len(segment.text) if is_tainted(segment) else segment.text for segment in segments])


def _cuts(tokens: ControlTokens, text: str, swapped: str) -> list[_Cut]:
    """Return the tokens in `text` with a tainted character: a character that differs in `swapped`."""
    cuts: list[_Cut] = []
    for match in tokens.find(text):
        if text[match.start : match.end] != swapped[match.start : match.end]:
            tainted = (at for at in range(match.start, match.end) if text[at] != swapped[at])
            cuts.append(_Cut(match, tuple(tainted)))
    return cuts


def _free(tree: Tree, text: str) -> Iterator[str]:
    """Return private-use characters that the input does not contain."""
    return unused("".join([text, *(segment.text for segment in filter(is_tainted, segments_of(tree)))]))


def _table(tree: Tree, text: str, alphabet: frozenset[str]) -> dict[int, int]:
    """Return a private-use character for each of `alphabet`, in the same order."""
    table = dict(zip(map(ord, sorted(alphabet)), map(ord, _free(tree, text + "".join(alphabet))), strict=False))
    if len(table) < len(alphabet):
        raise ControlTokenError(
            "the text contains nearly all private-use characters, so none is free as a mark; remove some of them"
        )
    return table


def _reversed(tables: Mapping[str, dict[int, int]]) -> tuple[dict[str, str], dict[int, int]]:
    """Return the place of each private-use character, and the character that it replaces."""
    owner_of: dict[str, str] = {}
    back: dict[int, int] = {}
    for pointer, table in tables.items():
        for character, swap in table.items():
            owner_of[chr(swap)] = pointer
            back[swap] = character
    return owner_of, back


def _unswapped(text: str, table: dict[int, int]) -> str:
    for character, swap in table.items():
        if chr(swap) in text:
            text = text.replace(chr(swap), chr(character))
    return text


def _swap(tree: Tree, table_of: Callable[[Segment], dict[int, int]]) -> Tree:
    """Return the tree as plain data, with the characters of tainted segments swapped."""

    def swapped(segment: Segment) -> str:
        return segment.text.translate(table_of(segment)) if is_tainted(segment) else segment.text

    return rewrite(tree, lambda segments: "".join(map(swapped, segments)))


def _cut(segments: Segments, offsets: Iterable[int]) -> Segments:
    """Return `segments` with a zero-width space at each offset, in the tainted segment that ends or starts there."""
    positions = deque(sorted(set(offsets)))
    result: list[Segment] = []
    start = 0
    for segment in segments:
        end = start + len(segment.text)
        inside: list[int] = []
        while is_tainted(segment) and positions and positions[0] <= end:
            inside.append(positions.popleft() - start)
        result.append(segment._replace(text=insert_breaks(segment.text, inside)))
        start = end
    return Segments(result)
