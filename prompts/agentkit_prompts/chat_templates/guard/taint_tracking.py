"""Which characters of a rendered text are untrusted, whatever the chat template did to them.

Untrusted characters that occur in a control token are swapped one to one for private-use characters, the template
renders that, and what comes out swapped was untrusted. Where a control token holds such a character, it is broken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from agentkit_prompts.chat_templates.guard.control_tokens import ControlTokens, Found, Policy
from agentkit_prompts.chat_templates.guard.stand_ins import first_difference, with_stand_ins
from agentkit_prompts.chat_templates.guard.tainted_text import Render, Run, Runs, Tree, rewrite, untagged, unused
from agentkit_prompts.errors import ControlTokenError
from agentkit_prompts.templates.spans import insert_breaks

__all__ = [
    "attempt",
    "broken",
    "broken_runs",
    "check_own_tokens",
    "guarded",
    "is_harmless",
    "relevant",
]


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
        render: The template; a pure function of the tree.
        tree: What is rendered; one that `is_harmless` needs no guard.
        text: What the template makes of it as it is; None when it fails.
        tokens: The template's control tokens.
        policy: `escape` breaks a token with a zero-width space, `reject` raises.
        rewrites: Whether the template may write other tokens by what a text says: then they are checked.

    Raises:
        ControlTokenError: A token was found and the policy is to reject it; or the template acts on untrusted text
            in a way that cannot be followed, or writes other tokens for it than for other text.
    """
    guard = _Guard(render, tokens, policy)
    whole, tree = tree, relevant(tree, tokens)
    found = guard.tracked(tree, text) if text is not None else None
    if found is None:
        # The template acts on what the text says: take the tokens out of each text before it sees them.
        tree = guard.escaped(tree)
        text = render(untagged(tree))
        found = guard.tracked(tree, text) or guard.with_only_its_own(tree, text)
    if found is None:
        raise ControlTokenError(
            "this chat template acts on what untrusted text says (or draws differently every time), so its control "
            "tokens cannot be kept apart from those of the text; correct the template, take the text out, or pass "
            'control_tokens="allow" where all of it can be trusted'
        )
    if rewrites:
        check_own_tokens(render, whole, found.swapped, tokens)
    return found.text


def check_own_tokens(render: Render, tree: Tree, text: str, tokens: ControlTokens) -> None:
    """Refuse a text whose control tokens are not those that the template writes around other untrusted text.

    Args:
        render: The template.
        tree: What is rendered, with everything untrusted in it tainted.
        text: What the template made of it, where no tainted character is part of a token.
        tokens: The template's control tokens.

    Raises:
        ControlTokenError: The template writes tokens, or roles behind them, by what untrusted text says.
    """
    for keeps_names in (False, True):
        around = attempt(render, with_stand_ins(tree, keeps_names=keeps_names))
        if around is not None:
            break
    different = first_difference(tokens, text, around) if around is not None else None
    if around is None or different is not None:
        what = f", such as {different!r}," if different is not None else ""
        raise ControlTokenError(
            f"this chat template makes control tokens{what} of what untrusted text says, as with `replace`, `split` or "
            "`if`: it writes others than around text of no meaning; correct the template, take the text out, or pass "
            'control_tokens="allow" where all of it can be trusted',
            name=different,
        )


def broken(render: Render, tree: Tree, text: str, tokens: ControlTokens) -> str | None:
    """Return `text`, which `render` made of the tree, with tainted tokens broken; None when it acts on what it says."""
    found = _Guard(render, tokens, "escape").broken(relevant(tree, tokens), text, tokens.alphabet)
    return None if found is None else found.text


def broken_runs(runs: Iterable[Run], tokens: ControlTokens, *, starts_line: bool) -> str:
    """Return the text of runs that is printed as it is, with tainted tokens broken."""
    runs = list(runs)
    zeros = dict.fromkeys(map(ord, tokens.alphabet), 0)
    before = "" if starts_line else "\ufffd"  # a character that is seen, and in no token
    text = before + "".join([run.text for run in runs])
    swapped = before + "".join([run.text.translate(zeros) if run.is_tainted else run.text for run in runs])
    return insert_breaks(text, [cut.at for cut in _cuts(tokens, text, swapped)])[len(before) :]


def is_harmless(tree: Tree, tokens: ControlTokens) -> bool:
    """Whether nothing tainted can be part of a control token: decided at a glance."""
    return not tokens or all(tokens.is_harmless(run.text) for run in _tainted(tree))


def relevant(tree: Tree, tokens: ControlTokens) -> Tree:
    """Return the tree with the taint taken off texts that can be part of no token, as a template may look them up."""
    return rewrite(tree, lambda runs: _relevant(runs, tokens))


def attempt(render: Render, tree: Tree) -> str | None:
    """Render text that the caller did not write; what the template finds wrong with it is no error of the caller's."""
    try:
        return render(tree)
    except Exception:
        return None


class _Cut(NamedTuple):
    """A control token with a tainted character."""

    found: Found
    tainted: tuple[int, ...]
    """Offsets of its tainted characters."""

    @property
    def at(self) -> int:
        """Where to break it: behind its first character, but never between two that are trusted."""
        return max(self.tainted[0], self.found.start + 1)


class _Followed(NamedTuple):
    """A rendering of which it is known what is tainted."""

    text: str
    """With tainted tokens broken."""
    swapped: str
    """With tainted characters swapped: what stands in it are the tokens of the template itself."""


@dataclass(frozen=True, slots=True)
class _Guard:
    """The steps of `guarded`."""

    render: Render
    tokens: ControlTokens
    policy: Policy

    def tracked(self, tree: Tree, text: str) -> _Followed | None:
        """Return `text`, the rendering of `tree`, with tainted tokens broken; None when taint cannot be followed."""
        for alphabet in self._alphabets(tree):
            if (found := self.broken(tree, text, alphabet)) is not None:
                return found
        return None

    def broken(self, tree: Tree, text: str, alphabet: frozenset[str]) -> _Followed | None:
        """Do as `tracked`, with one alphabet."""
        swapped = self._swapped(tree, text, alphabet)
        if swapped is None:
            return None
        cuts = _cuts(self.tokens, text, swapped)
        if cuts and self.policy == "reject":
            self._refuse(self._places(tree, text, cuts))
        return _Followed(insert_breaks(text, [cut.at for cut in cuts]), swapped)

    def escaped(self, tree: Tree) -> Tree:
        """Return the tree with the tokens broken that stand in one text."""
        places: list[tuple[str, str]] = []

        def change(runs: Runs) -> Runs:
            text = runs.text
            swapped = "".join(["\0" * len(run.text) if run.is_tainted else run.text for run in runs])
            cuts = _cuts(self.tokens.in_json, text, swapped)
            owners = [run.pointer for run in runs for _ in run.text]
            places.extend((cut.found.token, owners[at]) for cut in cuts for at in cut.tainted)
            return _cut(runs, [cut.at for cut in cuts])

        escaped = rewrite(tree, change)
        self._refuse(places)
        return escaped

    def with_only_its_own(self, tree: Tree, text: str) -> _Followed | None:
        """Return `text` if it holds the tokens, in order, that the template writes around text that can form none."""
        own = [found.token for found in self._in_order(text)]
        for alphabet in self._alphabets(tree):
            swapped, _ = self._redrawn(tree, text, alphabet)
            if swapped is not None and [found.token for found in self._in_order(swapped)] == own:
                return _Followed(text, swapped)
        return None

    def _in_order(self, text: str) -> list[Found]:
        return sorted(self.tokens.find(text))

    def _alphabets(self, tree: Tree) -> Iterator[frozenset[str]]:
        """Yield what is swapped: every character, or else (fewer templates notice) those that no token is without."""
        tokens = self.tokens
        yield tokens.alphabet
        if tokens.telling != tokens.alphabet and not any(tokens.fits_inside(run.text) for run in _tainted(tree)):
            yield tokens.telling

    def _redrawn(self, tree: Tree, text: str, alphabet: frozenset[str]) -> tuple[str | None, dict[int, int]]:
        """Return what the template makes of the swapped tree, and the swaps."""
        table = _table(tree, text, alphabet)
        return attempt(self.render, _swap(tree, lambda _: table)), table

    def _swapped(self, tree: Tree, text: str, alphabet: frozenset[str]) -> str | None:
        """Return what the template makes of the swapped tree if it is `text`, swapped."""
        swapped, table = self._redrawn(tree, text, alphabet)
        return swapped if swapped is not None and _unswapped(swapped, table) == text else None

    def _places(self, tree: Tree, text: str, cuts: Iterable[_Cut]) -> Iterator[tuple[str, str]]:
        """Yield each token with the places that its tainted characters are from.

        Every place gets swaps of its own, which tell it; where the template does not go along, places are candidates.
        """
        needed = frozenset(text[at] for cut in cuts for at in cut.tainted)
        texts = dict.fromkeys((run.pointer for run in _tainted(tree)), "")
        tables: dict[str, dict[int, int]] = {}
        free = _free(tree, text)
        for run in _tainted(tree):
            texts[run.pointer] += run.text
            if run.pointer not in tables:
                tables[run.pointer] = dict(zip(map(ord, needed), map(ord, free), strict=False))
        owners = {chr(swap): pointer for pointer, table in tables.items() for swap in table.values()}
        swapped = attempt(self.render, _swap(tree, lambda run: tables[run.pointer]))
        back = {swap: character for table in tables.values() for character, swap in table.items()}
        is_followed = swapped is not None and swapped.translate(back) == text
        for cut in cuts:
            for at in cut.tainted:
                owner = owners.get(swapped[at]) if is_followed and swapped is not None else None
                places = texts if owner is None else (owner,)
                yield from ((cut.found.token, place) for place in places if text[at] in texts[place])

    def _refuse(self, places: Iterable[tuple[str, str]]) -> None:
        """Raise an error that names every token and where it is from, if that is the policy."""
        if self.policy != "reject" or not (found := tuple(dict.fromkeys(places))):
            return
        listed = "; ".join(f"{token!r} in {pointer}" for token, pointer in found)
        raise ControlTokenError(
            f"untrusted text forms control tokens of the chat template: {listed}; take them out, or break them with "
            'control_tokens="escape"',
            found,
        )


def _cuts(tokens: ControlTokens, text: str, swapped: str) -> list[_Cut]:
    """Return the tokens in `text` that hold a tainted character: one that is another in `swapped`."""
    cuts: list[_Cut] = []
    for found in tokens.find(text):
        if text[found.start : found.end] != swapped[found.start : found.end]:
            tainted = (at for at in range(found.start, found.end) if text[at] != swapped[at])
            cuts.append(_Cut(found, tuple(tainted)))
    return cuts


def _relevant(runs: Runs, tokens: ControlTokens) -> Runs:
    return Runs(
        [
            run._replace(is_tainted=False)
            if run.is_tainted and not run.text.isspace() and tokens.is_harmless(run.text)
            else run
            for run in runs
        ]
    )


def _runs(tree: Tree) -> Iterator[Run]:
    """Yield the runs of a tree, in order."""
    if type(tree) is Runs:
        yield from tree
    elif type(tree) is dict:
        for key, value in tree.items():
            if type(key) is Runs:
                yield from key
            yield from _runs(value)
    elif type(tree) is list:
        for value in tree:
            yield from _runs(value)


def _tainted(tree: Tree) -> Iterator[Run]:
    return (run for run in _runs(tree) if run.is_tainted and run.text)


def _free(tree: Tree, text: str) -> Iterator[str]:
    """Return private-use characters that are nowhere in the input."""
    return unused("".join([text, *(run.text for run in _tainted(tree))]))


def _table(tree: Tree, text: str, alphabet: frozenset[str]) -> dict[int, int]:
    """Return a private-use character for each of `alphabet`, in the same order."""
    table = dict(zip(map(ord, sorted(alphabet)), map(ord, _free(tree, text + "".join(alphabet))), strict=False))
    if len(table) < len(alphabet):
        raise ControlTokenError(
            "the text holds nearly every private-use character there is, and none is left to mark with"
        )
    return table


def _unswapped(text: str, table: dict[int, int]) -> str:
    for character, swap in table.items():
        if chr(swap) in text:
            text = text.replace(chr(swap), chr(character))
    return text


def _swap(tree: Tree, table_of: Callable[[Run], dict[int, int]]) -> Tree:
    """Return the tree as plain data, the characters of tainted runs swapped."""
    return rewrite(
        tree,
        lambda runs: "".join(
            [run.text.translate(table_of(run)) if run.is_tainted and run.text else run.text for run in runs]
        ),
    )


def _cut(runs: Runs, offsets: Iterable[int]) -> Runs:
    """Return `runs` with a zero-width space at each offset, in the tainted run that ends or begins there."""
    wanted = deque(sorted(set(offsets)))
    if not wanted:
        return runs
    made: list[Run] = []
    start = 0
    for run in runs:
        end = start + len(run.text)
        here: list[int] = []
        while run.is_tainted and wanted and wanted[0] <= end:
            here.append(wanted.popleft() - start)
        made.append(run._replace(text=insert_breaks(run.text, here)) if here else run)
        start = end
    return Runs(made)
