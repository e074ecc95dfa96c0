"""Markers that only a Jinja chat template may write, collected from its literal text and its renderings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from jinja2 import nodes

from agentkit_prompts.chat_templates.jinja.environment import compiled
from agentkit_prompts.chat_templates.jinja.probe import CALL, TOOL, WORD, Probe
from agentkit_prompts.errors import ChatTemplateError
from agentkit_prompts.templates.sandbox.operation_errors import LimitReached

_MAX_MARKERS = 1_000
"""Maximum markers of one model: every composed text is searched for each marker."""
_MARKER = re.compile(
    r"<[|\uff5c][^\s<>|\uff5c]{1,60}[|\uff5c]?>"  # <|im_start|>, <|turn>, also with a wide bar
    r"|<[^\s<>|\uff5c]{1,60}[|\uff5c]>"  # <turn|>
    r"|<<[^\s<>]{1,40}>>"  # <<SYS>>
    r"|</?[A-Za-z_][\w.:-]{0,60}>"  # <s>, <start_of_turn>, <tool_call>
    r"|\[/?[A-Za-z]{0,3}[A-Z]{2}\w{0,40}\]"  # [INST], [gMASK]
    r"|\[\|[^\s|\[\]]{1,40}\|\]"  # [|user|]
    r"|[\[\]][!\w]{0,3}~[!\w]{0,3}[\[\]]"  # ]~b]
)
_PLAIN = re.compile(
    r"(?:^|\s)("
    r"(?:\#{1,4} ?)?(?:[A-Z]\w{0,30}(?: \w{1,20})?|user|assistant|system|human|bot|tool) ?:"
    r"|\#{1,4} ?[A-Z]\w{0,30}"
    r")\s*$"
)


def tokens_of_texts(texts: Iterable[str], tokens: Iterable[str | None], probe: Probe) -> tuple[str, ...]:
    """Return special tokens, then bracketed markers, then role markers that are plain words, each once, in order.

    Args:
        texts: Literal texts of the templates of a model, which are searched for markers.
        tokens: Known special tokens.
        probe: Renderer of small conversations, for markers that the template builds from a role.

    Raises:
        ChatTemplateError: The texts have more markers than a model can have, or a conversation exceeds the limits.
    """
    special = [token for token in tokens if token and not token.isspace()]
    glue = [*_glue(probe)]
    # No marker contains a line break.
    bracketed = _MARKER.findall("\n".join([*texts, *glue, *_glue_of_calls(probe)]))
    # A marker of words ends a line of the text between two words.
    lines = _MARKER.sub("\n", "\n".join(glue)).splitlines()
    plain = [marker for line in lines for marker in _PLAIN.findall(line)]
    markers = dict.fromkeys([*bracketed, *plain])
    if len(markers) > _MAX_MARKERS:
        raise ChatTemplateError(
            f"chat template: it writes {len(markers):,} different markers of messages, such as {bracketed[-1]!r}; "
            f"expected {_MAX_MARKERS:,} at most. Pass tokens of the tokenizer as added_tokens=",
            name="added_tokens",
        )
    return tuple(dict.fromkeys([*special, *markers]))


def literals(source: str) -> Iterator[str]:
    """Yield the literal texts of a template and of its expressions, also if joined by `~` and `+`."""
    tree = compiled(source, True).environment.parse(source)
    for node in tree.find_all((nodes.TemplateData, nodes.Const, nodes.Concat, nodes.Add)):
        yield from _joined(node)


def _joined(node: nodes.Node) -> list[str]:
    """Return the texts of an expression; neighbouring texts are joined, and other values separate them."""
    match node:
        case nodes.TemplateData():
            return [node.data]
        case nodes.Const():
            return [node.value] if isinstance(node.value, str) else []
        case nodes.Concat():
            return _glued(node.nodes)
        case nodes.Add():
            return _glued([node.left, node.right])
    return []


def _glued(sides: Iterable[nodes.Node]) -> list[str]:
    texts = [""]
    for side in sides:
        # A value that is not text separates the text.
        first, *rest = _joined(side) or ["", ""]
        texts[-1] += first
        texts += rest
    return texts


def _glue_of_calls(probe: Probe) -> Iterator[str]:
    """Yield the texts that the template writes around tools, calls, results and thinking."""
    question = {"role": "user", "content": WORD}
    result = {"role": "tool", "content": WORD, "tool_call_id": "000000000", "name": WORD}
    thought = {"role": "assistant", "content": WORD, "reasoning_content": WORD, "thinking": WORD}
    for arguments in ({"key": WORD}, f'{{"key": "{WORD}"}}'):
        if parts := _parts(probe.outcome([question, CALL(arguments), result], [TOOL], True)):
            yield from parts
            break
    yield from _parts(probe.outcome([question, thought], None, False))


def _glue(probe: Probe) -> Iterator[str]:
    """Yield the texts that the template writes around the words of small conversations."""
    turns = [{"role": role, "content": WORD} for role in ("user", "assistant", "user")]
    result = {"role": "tool", "content": WORD, "tool_call_id": "000000000", "name": WORD}
    for messages in ([{"role": "system", "content": WORD}, *turns], turns, [*turns[:2], result]):
        yield from _parts(probe.outcome(messages, None, True))


def _parts(text: str | ChatTemplateError) -> list[str]:
    """Return the texts around the words of a text; none if the template refuses the conversation.

    Raises:
        ChatTemplateError: The rendering exceeds the limits, so its text is unknown.
    """
    if isinstance(text, str):
        return text.split(WORD)
    if isinstance(text.__cause__, LimitReached):
        raise text
    return []
