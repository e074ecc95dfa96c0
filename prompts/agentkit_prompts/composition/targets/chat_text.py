"""Text of a composition in the chat template of a local model.

Untrusted text cannot form one of the template's control tokens; the developer's text is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from agentkit_prompts.chat_templates.guard.control_tokens import ControlTokens, Policy, tokens_of
from agentkit_prompts.chat_templates.guard.taint_tracking import attempt, check_own_tokens, guarded, is_harmless
from agentkit_prompts.chat_templates.guard.tainted_text import Segments, Tree, untagged
from agentkit_prompts.chat_templates.guard.trusted_reasoning import with_reasoning
from agentkit_prompts.chat_templates.normalise import flat, plain
from agentkit_prompts.chat_templates.template_finder import GivenTemplate, find_chat_template
from agentkit_prompts.chat_templates.template_variables import check_variables
from agentkit_prompts.composition.sections import SEPARATOR, Section
from agentkit_prompts.composition.targets.by_message import text_by_message, tokens_by_message
from agentkit_prompts.composition.targets.chat_trees import (
    CheckedTree,
    PromptReader,
    TreeReader,
    checked,
    words_of_tools,
)
from agentkit_prompts.composition.targets.tools_in_text import shows_tools, with_tools_as_text
from agentkit_prompts.context.items import Document
from agentkit_prompts.context.messages import Message
from agentkit_prompts.errors import ChatTemplateError, ControlTokenError, Problem, brief
from agentkit_prompts.templates.spans import Segment
from agentkit_prompts.tokens.counter import prompt_count

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.protocol import ChatTemplate
    from agentkit_prompts.composition.call_content import CallContent
    from agentkit_prompts.context.conversation import Conversation

T = TypeVar("T")

_POLICIES = get_args(Policy)


def chat_text(
    composition: CallContent,
    chat_template: GivenTemplate,
    *,
    control_tokens: Policy = "escape",
    add_generation_prompt: bool = True,
    **kwargs: Any,
) -> str:
    """Return the composition as `chat_template` writes it, media as alt text.

    `chat_template` is an argument of `find_chat_template`. The template receives messages and tools in the form of a
    chat-completions request, as plain dicts. `kwargs` are passed unchanged; `documents` are untrusted, other values are
    text of the developer. If a template has no place for tools, a prompt such as `ToolPrompt` must show the tools, and
    calls and results become text of their messages.

    Raises:
        ChatTemplateError: No template has this name, or the template has no place for a part of the conversation.
        ControlTokenError: Untrusted text forms control tokens, and `control_tokens` is `reject`; or control tokens in
            the output could be either from the template or from untrusted text.
    """
    kwargs["add_generation_prompt"] = add_generation_prompt
    return written_by_template(composition, chat_template, control_tokens, kwargs, _text)


def text_tokens(
    composition: CallContent, chat_template: GivenTemplate, *, control_tokens: Policy = "escape", **kwargs: Any
) -> int:
    """Return the number of tokens of the text that `chat_text` returns, with the counter of the composition.

    If the template writes each message separately, the count of each stored message is cached. Raises like `chat_text`.
    """
    return written_by_template(
        composition, chat_template, control_tokens, {**kwargs, "add_generation_prompt": True}, _tokens
    )


def written_by_template(
    composition: CallContent,
    chat_template: GivenTemplate,
    control_tokens: Policy,
    kwargs: Mapping[str, Any],
    result: Callable[[CallContent, ChatTemplate, Policy, Mapping[str, Any]], T],
) -> T:
    """Return `result` for the composition; if the template cannot declare tools, calls and results become text."""
    variables = {name: value for name, value in kwargs.items() if name != "add_generation_prompt"}
    template = chat_template_of(chat_template, composition.context.now, variables)
    has_results: bool = getattr(template, "has_results", False)
    is_declared = bool(composition.tools_and_output.context_tools) or not composition.context.tools
    # If only a prompt shows the tools, the template would write calls in a form that the model has not seen.
    if not (is_declared and getattr(template, "writes_tools", True)) and shows_tools(composition.layers):
        composition = with_tools_as_text(composition, has_results=has_results)
    try:
        return result(composition, template, control_tokens, kwargs)
    except ControlTokenError:
        raise
    except ChatTemplateError:
        if not shows_tools(composition.layers):
            raise
    return result(with_tools_as_text(composition, has_results=has_results), template, control_tokens, kwargs)


def _tokens(composition: CallContent, template: ChatTemplate, control_tokens: Policy, kwargs: Mapping[str, Any]) -> int:
    tokens = None
    if control_tokens != "reject":
        tokens = tokens_by_message(composition, template, kwargs, is_guarded=control_tokens == "escape")
    if tokens is not None:
        return tokens
    return prompt_count(composition.counter)(_text(composition, template, control_tokens, kwargs))


def _text(composition: CallContent, template: ChatTemplate, control_tokens: Policy, kwargs: Mapping[str, Any]) -> str:
    check_policy(control_tokens)
    text = text_by_message(composition, template, kwargs, is_guarded=control_tokens != "allow")
    # If the unguarded text differs, a token was broken: `whole_text` raises the error with the place of the token.
    if control_tokens == "reject" and text != text_by_message(composition, template, kwargs, is_guarded=False):
        text = None
    return text if text is not None else whole_text(composition, template, control_tokens, (), kwargs)[0]


def whole_text(
    composition: CallContent,
    template: ChatTemplate,
    policy: Policy,
    more: Sequence[Message],
    kwargs: Mapping[str, Any],
) -> tuple[str, dict[str, Any]]:
    """Return the text of all messages and of the messages in `more` after them, and the input of the template.

    The input contains `messages` and `tools`, with control tokens unbroken. Raises like `chat_text`.
    """
    check_policy(policy)
    tokens = tokens_of(template)
    read = TreeReader(tokens, words_of_tools(composition.tools), is_split=policy != "allow")
    messages = list(_messages(composition, read, is_located=policy == "reject"))
    for at, message in enumerate(more, len(composition.conversation)):
        messages.append(checked(read.message(message, f"conversation[{at}]"), tokens))
    trees = _tool_and_document_trees(composition, read, kwargs)

    def render(drawn: Tree) -> str:
        return template.render(**{**kwargs, **drawn})

    # Copies, because a template may change its input.
    request = {"messages": [_copied(message) for message in messages], **untagged(trees)}
    if policy == "allow" or not tokens:
        return render(request), request
    tree: Tree = {"messages": [message.tree for message in messages], **trees}
    rewrites: bool = getattr(template, "rewrites_text", True)
    may_form_tokens = not is_harmless(trees, tokens) or not all(message.is_harmless for message in messages)
    if may_form_tokens:
        tree = with_reasoning(render, tree, tokens)
        return guarded(render, tree, attempt(render, request), tokens, policy, rewrites=rewrites), request
    text = render(request)
    if rewrites:
        check_own_tokens(render, tree, text, tokens)
    return text, request


def check_policy(policy: object) -> None:
    """Reject a value of `control_tokens` that is not a `Policy`, with a ChatTemplateError."""
    problem = policy_problem_of(policy)
    if problem is not None:
        raise ChatTemplateError(str(problem), name=problem.place)


def policy_problem_of(policy: object) -> Problem | None:
    """Return the problem of a value of `control_tokens`; None for a `Policy`."""
    if policy in _POLICIES:
        return None
    return Problem("control_tokens", f"expected one of {', '.join(map(repr, _POLICIES))}, got {brief(policy)}")


def _tool_and_document_trees(composition: CallContent, read: TreeReader, kwargs: Mapping[str, Any]) -> dict[str, Tree]:
    """Return the trees of the tools, and of the documents if they are an option of the template."""
    tools = [read.tool(tool, f"tools[{at}]") for at, tool in enumerate(composition.tools)]
    trees: dict[str, Tree] = {"tools": tools or None}
    if "documents" in kwargs:
        documents = _titles_and_texts(kwargs["documents"])
        trees["documents"] = flat("documents", lambda: read.json_data(plain(documents), "documents"))
    return trees


def _titles_and_texts(documents: Any) -> Any:
    """Return documents as dicts of the two fields that retrieval templates read; return other values unchanged."""
    if not isinstance(documents, list | tuple):
        return documents
    return [{"title": item.title, "text": item.text} if isinstance(item, Document) else item for item in documents]


def _copied(message: CheckedTree) -> dict[str, Any]:
    # A message with only a role and text needs no deep copy.
    plain: dict[str, Any] = message.plain
    if len(plain) > 2:
        plain = untagged(message.tree)
    return {**plain}


def _messages(composition: CallContent, read: TreeReader, *, is_located: bool) -> Iterator[CheckedTree]:
    """Yield the trees of all messages; the segments of stored messages have JSON pointers only if `is_located`."""
    for entry in composition.in_order():
        if isinstance(entry, Section):
            yield _section(entry, read.tokens)
        elif is_located:
            yield from _located(composition, entry, read)
        else:
            # Only the error of the policy `reject` needs pointers. Without pointers, the tree of a message is cached.
            yield from entry.derive(read)


def _located(composition: CallContent, messages: Conversation, read: TreeReader) -> Iterator[CheckedTree]:
    name: Literal["conversation", "intermediate"] = "conversation"
    if messages is composition.intermediate:
        name = "intermediate"
    for message, index in composition.placed(name):
        yield checked(read.message(message, f"{name}[{index}]"), read.tokens)


def _section(section: Section, tokens: ControlTokens) -> CheckedTree:
    """Return the tree of a message that is rendered from prompts."""
    renderings = [(path, rendered) for path, _, rendered in section.fragments if rendered.text]
    prompts = [rendered.derive(PromptReader(path, tokens)) for path, rendered in renderings]
    segments: list[Segment] = []
    for prompt in prompts:
        if segments:
            segments.append(Segment(SEPARATOR, section.label))
        segments += prompt.tree
    plain = {"role": section.role, "content": SEPARATOR.join([prompt.plain for prompt in prompts])}
    tree = {"role": section.role, "content": Segments(segments)}
    return CheckedTree(tree, plain, all(prompt.is_harmless for prompt in prompts))


def chat_template_of(
    chat_template: GivenTemplate, now: datetime | None = None, kwargs: Mapping[str, Any] = {}
) -> ChatTemplate:
    """Return the template that `find_chat_template` finds. If the template writes a date, it is the date of `now`.

    Raises:
        ChatTemplateError: The template is unknown, does not read one of `kwargs`, or the value is not a chat template.
    """
    template = find_chat_template(chat_template)
    # Before `with_now`, which creates another template for each time.
    check_variables("chat template", kwargs, template)
    with_now: Callable[[datetime], ChatTemplate] | None = getattr(template, "with_now", None)
    if now is None or with_now is None:
        return template
    return with_now(now)
