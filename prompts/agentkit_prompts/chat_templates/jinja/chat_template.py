"""`JinjaChatTemplate`: chat template of a model, in an environment like the environment of `transformers`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from traceback import walk_tb
from typing import Any, TypeVar, cast

import jinja2

from agentkit_prompts.chat_templates.base_template import check_template_fields
from agentkit_prompts.chat_templates.chat_turns import plain_turns
from agentkit_prompts.chat_templates.dropped_content import WORD, Conversation
from agentkit_prompts.chat_templates.generation import KnownSpans, Spans, has_generation, marked_spans, reply_spans
from agentkit_prompts.chat_templates.guard.control_tokens import ControlTokens, is_at_line_start
from agentkit_prompts.chat_templates.jinja.clock import CLOCK, clock_of, requires_clock
from agentkit_prompts.chat_templates.jinja.diagnose import Finding, diagnose, read_names, unreadable_calls
from agentkit_prompts.chat_templates.jinja.environment import ChatContext, compiled
from agentkit_prompts.chat_templates.jinja.failure_reasons import reason_of
from agentkit_prompts.chat_templates.jinja.markers import literals, tokens_of_texts
from agentkit_prompts.chat_templates.jinja.open_reply import render_open
from agentkit_prompts.chat_templates.jinja.probe import Probe
from agentkit_prompts.chat_templates.jinja.tokenizer_config import read_files
from agentkit_prompts.chat_templates.normalise import as_mappings, as_tools, flat, normalised, plain
from agentkit_prompts.chat_templates.protocol import FIELDS_ELSEWHERE, TOOLS_IN_PROMPT
from agentkit_prompts.chat_templates.tool_calls.formats import checked_format
from agentkit_prompts.chat_templates.tool_calls.rendered_call import RenderedCall, detected_format
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.errors import ChatTemplateError, Problems
from agentkit_prompts.names import nearest, reject_unknown_fields
from agentkit_prompts.templates.isolated_process import IsolatedProcess, read_text, read_texts
from agentkit_prompts.templates.sandbox.meter import CHAT_LIMITS, Limits, Meter, SharedLimits, join_output

R = TypeVar("R")
_WORKER = "agentkit_prompts.chat_templates.jinja.isolated_worker"
_WITH_TOOLS = "tool_use"
_CHECKED = ("bos_token", "eos_token", "special_tokens", "added_tokens", "named", "stop_words")
"""Fields whose values are checked when a template is created."""
_MAX_PROBE_CHARS = 100_000
"""Maximum characters of a rendered small conversation, which is searched for markers."""


@reject_unknown_fields(ChatTemplateError, FIELDS_ELSEWHERE)
@dataclass(frozen=True)
class JinjaChatTemplate:
    """A Jinja chat template, compiled once. Templates are untrusted unless `limits` is None.

    Raises:
        ChatTemplateError: The source is not a template.
    """

    source: str
    bos_token: str | None = None
    eos_token: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    """Other tokens that the template can read, such as `pad_token`."""
    added_tokens: Sequence[str] = ()
    """All other tokens that the tokenizer never splits, such as additional special tokens."""
    named: Mapping[str, str] = field(default_factory=dict)
    """Further templates of the model by name; `tool_use` is used with tools."""
    now: datetime | None = None
    """Time that `strftime_now` formats; if None, a composition passes the `now` of its context. Without a time, the
    template has no clock and prints its fixed date."""
    normalise: bool = True
    """True to convert messages to the forms that the template reads; False to pass them unchanged."""
    lossy: bool = False
    """True to accept a template that leaves out messages, tool calls or tools; otherwise an error."""
    limits: Limits | None = CHAT_LIMITS
    """Limits of one rendering; None for a trusted template."""
    isolated: bool = False
    """True to compile and render in a separate process, which is killed when it exceeds its limits. The start takes
    about 0.3 s; templates receive JSON data, with lists instead of tuples."""
    stop_words: Sequence[str] | None = None
    """Texts that end a reply; the eos token by default."""
    tool_call_format: str | None = None
    """Format of the tool calls of the model; by default the format in which a call that the template renders can be
    read."""
    file: str | None = None
    """Path of the template, for error messages."""
    _probes: dict[str, Probe] = field(default_factory=dict, init=False, repr=False, compare=False)
    _dated_probes: dict[str, Probe] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kinds = {each.name: str(each.type) for each in fields(self) if each.name in _CHECKED}
        check_template_fields("JinjaChatTemplate", {name: getattr(self, name) for name in kinds}, kinds)
        if self.stop_words is None and self.eos_token:
            object.__setattr__(self, "stop_words", (self.eos_token,))
        for name, source in {"": self.source, **self.named}.items():
            if self.isolated and isinstance(source, str):
                self._ask("check", bool, source)
            else:
                self._compiled(source, name)
        if checked_format(self.tool_call_format) is None:
            texts = [self.source, *self.named.values()]
            object.__setattr__(self, "tool_call_format", detected_format(texts, lambda: self._rendered_call))

    @cached_property
    def reads_its_calls(self) -> bool:
        """True if a tool call that the template renders can be read in its `tool_call_format`."""
        return self._rendered_call is None or self._rendered_call.is_read_in(self.tool_call_format)

    @property
    def _rendered_call(self) -> RenderedCall | None:
        return self._probe(self._source([])).rendered_call

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields only: cached results of renderings are computed again."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
        return {**values, "_probes": {}, "_dated_probes": {}}

    @classmethod
    def from_file(cls, path: str | Path, name: str | None = None, **fields: Any) -> JinjaChatTemplate:
        """Read the chat template of a model: a `.jinja` file, `tokenizer_config.json`, or the folder they are in.

        Args:
            path: File or folder; special tokens are read from the tokenizer configuration, if any.
            name: Name of the template if the model has several; by default `default`.
            fields: Fields of the template that the files do not define.

        Raises:
            ChatTemplateError: The template is unknown, or is not a chat template.
        """
        file, named, tokens, added = read_files(Path(path))
        key = name or "default"
        if name is None and len(named) == 1:
            (key,) = named
        if key not in named:
            raise ChatTemplateError(f"{file}: unknown template {key!r}{nearest(key, named)}", template=file, name=key)
        source = named.pop(key)
        if name is not None:
            # The caller chose one template for all conversations.
            named = {}
        values: dict[str, Any] = {
            "bos_token": tokens.pop("bos_token", None),
            "eos_token": tokens.pop("eos_token", None),
            "special_tokens": tokens,
            "added_tokens": added,
            "named": named,
            "file": file,
        }
        return cls(source, **{**values, **fields})

    def render(
        self,
        messages: Sequence[Message | Mapping[str, Any]],
        tools: Sequence[ToolSpec | Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        *,
        documents: Sequence[Mapping[str, Any]] | None = None,
        continue_final_message: bool | str = False,
        **kwargs: Any,
    ) -> str:
        """Return the text of a conversation.

        Args:
            messages: `Message` objects, or mappings in the form of a chat-completions request. They are not changed.
            tools: `ToolSpec` objects or mappings; the template receives plain JSON data.
            add_generation_prompt: True to end with the opening of the reply.
            documents: Documents for retrieval templates, each with `title` and `text`.
            continue_final_message: Leave the last message open, so that the model continues its `content`, or the field
                with this name. No generation prompt is added.
            kwargs: Other variables of the template, such as `enable_thinking`.

        Raises:
            ChatTemplateError: The template refuses the conversation, would silently drop a part of it, or exceeds the
                limits.
        """
        tool_data = as_tools(tools)
        source = self._source(tool_data)
        data = self._messages(messages, source)
        variables = self._variables_of(documents, kwargs)
        if continue_final_message:
            name = continue_final_message if isinstance(continue_final_message, str) else "content"
            return render_open(data, name, lambda opened: self.run(source, opened, tool_data, False, variables))
        text = self.run(source, data, tool_data, bool(add_generation_prompt), variables)
        if self.normalise and not self.lossy:
            self._check_content(source, Conversation(data, tool_data), text, bool(add_generation_prompt), variables)
        return text

    def _check_content(
        self, source: str, conversation: Conversation, text: str, prompt: bool, variables: Mapping[str, Any]
    ) -> None:
        """Reject a text that lacks a part of the conversation."""
        shared = SharedLimits(self.limits) if self.limits is not None else None

        def render_again(changed: Conversation) -> str:
            return self.run(source, changed.messages, changed.tools, prompt, variables, shared=shared)

        # The time and the words of documents do not affect the parts that a template leaves out.
        options = {**variables, "documents": bool(variables["documents"]), CLOCK: None}
        lost = self._probe(source).content_check.lost(conversation, text, render_again, (prompt, options))
        if lost:
            raise self._incomplete(lost)

    def _incomplete(self, lost: Problems) -> ChatTemplateError:
        advice = ""
        if any("tool" in problem.text for problem in lost):
            advice = f"; {TOOLS_IN_PROMPT}"
        return ChatTemplateError(
            f"{self.file or 'chat template'}: the template drops {', '.join(map(str, lost))}{advice}. In Python, "
            f"diagnose() lists the limits of the template, and lossy=True accepts them",
            template=self.file,
            problems=lost,
        )

    def spans(
        self,
        messages: Sequence[Message | Mapping[str, Any]],
        tools: Sequence[ToolSpec | Mapping[str, Any]] | None = None,
        known_spans: KnownSpans | None = None,
        **kwargs: Any,
    ) -> tuple[str, Spans]:
        """Return the text of a finished conversation, and the spans of the assistant: the `{% generation %}` blocks, or
        the text after each generation prompt with the closing token.

        Raises:
            ChatTemplateError: The template refuses the conversation, or the spans are unknown.
        """
        tool_data = as_tools(tools)
        source = self._source(tool_data)
        if has_generation(source):
            text = self.render(messages, tools, False, **kwargs)
            data = self._messages(messages, source)
            variables = self._variables_of(None, kwargs)
            return text, marked_spans(text, lambda marks: self.run(source, data, tool_data, False, variables, marks))
        return reply_spans(
            self._messages(messages, source),
            lambda part, prompt: self.render(part, tools, prompt, **kwargs),
            self.control_tokens,
            known_spans,
        )

    @property
    def requires_clock(self) -> bool:
        """True if the template prints the date and has no fixed date: rendering without a time is an error."""
        return self.now is None and any(map(requires_clock, (self.source, *self.named.values())))

    def with_now(self, now: datetime) -> JinjaChatTemplate:
        """Return the template with this `now`; the same object if it has a `now` or prints no date."""
        if self.now is not None or not any(CLOCK in source for source in (self.source, *self.named.values())):
            return self
        template = replace(self, now=now)
        # The results of probes are valid for any date.
        vars(template)["_probes"] = self._dated_probes
        if self.isolated:
            vars(template)["_process"] = self._process
        return template

    @cached_property
    def control_tokens(self) -> tuple[str, ...]:
        """Texts that only the template may write: stop words, bos and eos, and message markers."""
        tokens = (self.bos_token, self.eos_token, *self.special_tokens.values(), *self.added_tokens)
        tokens = (*tokens, *(self.stop_words or ()))
        texts = [text for source in (self.source, *self.named.values()) for text in self._literals(source)]
        return tokens_of_texts(texts, tokens, self._probe(self.source))

    @cached_property
    def inline_markers(self) -> tuple[str, ...]:
        """The markers of words that the template writes inside of a line in a small conversation."""
        talk = [{"role": role, "content": WORD} for role in ("user", "assistant", "user")]
        text = self._probe(self.source).outcome(talk, None, True)
        if isinstance(text, ChatTemplateError):
            return ()
        places = [(word, text.find(word, text.find(WORD))) for word in ControlTokens(self.control_tokens).words]
        return tuple([word for word, at in places if at >= 0 and not is_at_line_start(text[:at])])

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names of the variables that the template reads; `render` accepts them as keyword arguments."""
        names: set[str] = set()
        for source in (self.source, *self.named.values()):
            names.update(self._ask("names", read_texts, source) if self.isolated else read_names(source))
        return frozenset(names - {CLOCK})

    def diagnose(self) -> list[Finding]:
        """Return findings about the template from the texts of small conversations."""
        with_tools = None
        if _WITH_TOOLS in self.named:
            with_tools = self._probe(self.named[_WITH_TOOLS])
        findings = [*diagnose(self.source, self.variables, self._probe(self.source), with_tools)]
        if not self.reads_its_calls:
            findings.append(unreadable_calls(self.tool_call_format))
        return findings

    @cached_property
    def _variables(self) -> dict[str, Any]:
        tokens = dict(self.special_tokens)
        for name, token in (("bos_token", self.bos_token), ("eos_token", self.eos_token)):
            if token is not None or self.normalise:
                tokens[name] = token or ""
        return {**tokens, **self.clock}

    @property
    def clock(self) -> dict[str, Callable[[str], str]]:
        """The function that formats the time, under its name in templates; empty without a `now`."""
        if self.now is None:
            return {}
        return {CLOCK: clock_of(self.now, is_limited=self.limits is not None)}

    def _variables_of(self, documents: object, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the variables of one rendering."""
        if documents is None and not kwargs:
            return {**self._variables, "documents": None}
        variables: dict[str, Any] = {"documents": documents, **kwargs}
        return {**self._variables, **flat("variables of the template", lambda: plain(variables))}

    def _probe(self, source: str) -> Probe:
        if source not in self._probes:
            limits = self.limits
            # The limits of one rendering can be too low for several probes.
            if limits is not None and limits.rounds < CHAT_LIMITS.rounds:
                limits = replace(limits, rounds=CHAT_LIMITS.rounds)
            shared = SharedLimits(limits, _MAX_PROBE_CHARS) if limits is not None else None

            def render(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None, prompt: bool) -> str:
                return self.run(source, messages, tools, prompt, self._variables, shared=shared)

            self._probes[source] = Probe(render, source)
        return self._probes[source]

    def _source(self, tools: Sequence[Any] | None) -> str:
        if tools is None:
            return self.source
        return self.named.get(_WITH_TOOLS, self.source)

    def _messages(self, messages: object, source: str) -> list[dict[str, Any]]:
        """Return messages as plain data, in the forms that the template reads."""
        probe = self._probe(source)
        turns = plain_turns(messages, probe.text_roles if self.normalise else None)
        if turns is not None:
            return cast("list[dict[str, Any]]", turns)
        mappings = as_mappings(messages)
        if not self.normalise:
            return mappings
        return flat("messages", lambda: normalised(mappings, probe.content, lambda: probe.arguments))

    @cached_property
    def _process(self) -> IsolatedProcess:
        return IsolatedProcess(_WORKER, ChatTemplateError)

    def _ask(self, what: str, read: Callable[[Any], R], source: str, **given: Any) -> R:
        """Return the reply of the process of an isolated template."""
        limits = asdict(self.limits) if self.limits is not None else None
        return self._process.ask(what, read, source=source, file=self.file, **{"limits": limits, **given})

    def _literals(self, source: str) -> Iterable[str]:
        if self.isolated:
            return self._ask("literals", read_texts, source)
        return literals(source)

    def _compiled(self, source: str, name: str = "") -> jinja2.Template:
        where = f"{self.file or 'chat template'}{f' ({name})' if name else ''}"
        if not isinstance(source, str):
            raise ChatTemplateError(
                f"{where}: expected the text of a template, got {type(source).__name__}", template=self.file
            )
        try:
            return compiled(source, self.limits is not None)
        except jinja2.TemplateSyntaxError as error:
            raise ChatTemplateError(
                f"{where}{self._line(error.lineno)}: {error.message}", template=self.file, line=error.lineno
            ) from error
        except (RecursionError, MemoryError, SyntaxError, ValueError, OverflowError) as error:
            raise ChatTemplateError(
                f"{where}: the template cannot be compiled: {type(error).__name__}", template=self.file
            ) from error

    def _line(self, line: int) -> str:
        """Return the place of a line in errors: a line of the template in a JSON file is not a line of the file."""
        return f": chat_template, line {line}" if (self.file or "").endswith(".json") else f":{line}"

    def run(
        self,
        source: str,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None,
        prompt: bool,
        variables: Mapping[str, Any],
        marks: tuple[str, str] | None = None,
        shared: SharedLimits | None = None,
    ) -> str:
        """Run a template over plain data; an isolated template runs in its process.

        Renderings in this process with the same `shared` limits use these limits together.
        """
        limits = self.limits if shared is None else shared.left
        if self.isolated:
            return self._run_isolated(source, (messages, tools, prompt), variables, marks, limits)
        meter = Meter(limits) if limits is not None else None
        inputs = {"messages": messages, "tools": tools, "add_generation_prompt": prompt, **variables}
        try:
            return self._run_here(self._compiled(source), inputs, marks, meter)
        finally:
            if shared is not None and meter is not None:
                shared.use(meter)

    def _run_isolated(
        self,
        source: str,
        given: tuple[object, ...],
        variables: Mapping[str, Any],
        marks: tuple[str, str] | None,
        limits: Limits | None,
    ) -> str:
        """Run a template in its process."""
        data = {name: value for name, value in variables.items() if name != CLOCK}
        return self._ask(
            "render",
            read_text,
            source,
            given=given,
            variables=data,
            marks=marks,
            now=self.now.isoformat() if self.now is not None else None,
            limits=asdict(limits) if limits is not None else None,
        )

    def _run_here(
        self, template: jinja2.Template, given: dict[str, Any], marks: tuple[str, str] | None, meter: Meter | None
    ) -> str:
        """Run a compiled template in this process."""
        context = ChatContext.of(template, given, meter)
        context.marks = marks
        try:
            if meter is not None:
                # Limits used up by earlier renderings reject even the shortest rendering.
                meter.look()
            texts = [*template.root_render_func(context)]
            return "".join(texts) if meter is None else join_output(texts, meter.limits.output_chars)
        except Exception as error:
            raise self._failure(template, error) from error

    def _failure(self, template: jinja2.Template, error: Exception) -> ChatTemplateError:
        line = None
        for frame, at in walk_tb(error.__traceback__):
            if frame.f_globals.get("__jinja_template__") is template:
                line = template.get_corresponding_lineno(at)
        message, name, refusal = reason_of(error)
        place = f"{self.file or 'chat template'}{self._line(line) if line else ''}"
        return ChatTemplateError(f"{place}: {message}", template=self.file, line=line, name=name, refusal=refusal)
