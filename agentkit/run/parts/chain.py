"""`Chain`: layers, a model and an output type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Unpack, cast, overload

from typing_extensions import TypeVar

from agentkit.errors import AgentDefinitionError
from agentkit.ground.short_errors import short_errors
from agentkit.ground.sync_driver import run_blocking
from agentkit.ground.unknown_options import ELSEWHERE, refusing_unknown
from agentkit.models.abilities import fitted, requires_clock, text_tokens_of
from agentkit.models.model import MODEL_EXPECTED, Model
from agentkit.output.answer import AnswerReader
from agentkit_prompts.composition.compose import RenderCache, compose
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.select_examples import needs_selection
from agentkit_prompts.context.prompt_context import PromptContext, Selection, UserInput
from agentkit_prompts.errors import PrompterError, brief, kind_of
from agentkit_prompts.tokens.budget import Budget
from agentkit_prompts.tokens.counter import COUNTER_EXPECTED, TokenCounter, is_counter
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.leaves import AnyPrompt
from agentkit_prompts.tree.prompt import BasePrompt
from agentkit_prompts.tree.volatility import RANKS, volatility_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from typing_extensions import TypeForm

    from agentkit.models.model import Delta, OnDelta, Reply
    from agentkit.output.output_spec import OutputSpec
    from agentkit_prompts.prompters.history import History, Tools
    from agentkit_prompts.prompters.prompter import Prompter, SlotValues
    from agentkit_prompts.schemas.params import JsonSchema

LAYERS_EXPECTED = 'expected Layers, such as Layers("Be brief.") or PromptFolder.load(path).layers(), or a prompter'

Output = TypeVar("Output", default=str)
_TEXT = AnswerReader(str, cast(Any, None))
"""Reader of answers whose type is text, shared by all chains."""


class _Options(TypedDict, total=False):
    counter: TokenCounter | None
    budget: int | Budget | None
    redact: Callable[[Composition], Composition] | None


@refusing_unknown(**ELSEWHERE)
class Chain(Generic[Output]):
    """Layers bound to a model: sends one composition and returns one answer.

    Args:
        model: The model that receives the composition, or its name such as "openai:gpt-5-mini".
        layers: The layers; a prompt, `Template` or str becomes the system prompt. A `Prompter` has its own layers.
        output: The output type: `str`, or any type that pydantic validates; a function, which is called with the
            answer and finishes the run; or an `OutputSpec`, which sets how the answer is requested and validated. In
            the mode `prompted` the schema is added at the end of `system`, or replaces a prompt with the name `output`.
        counter: Token counter; a fast estimate by default.
        budget: Maximum tokens of a composition; prompts are shortened by their `size`.
        redact: Receives every composition before it is sent and returns the composition to send, such as
            `lambda composition: composition.mapped(mask)`. It can raise to stop the run.

    Raises:
        AgentDefinitionError: The output type has no JSON Schema, or this model cannot return it.
        PromptError: A prompt can never render.
    """

    __slots__ = (
        "_declares_tools",
        "_fenced",
        "_requires_clock",
        "_requires_kwargs",
        "answer",
        "budget",
        "counter",
        "layers",
        "model",
        "output",
        "prompter",
        "redact",
        "sent_layers",
    )

    answer: AnswerReader
    """Reader of answers, with the output schema of requests."""
    sent_layers: Layers
    """The layers, with the prompt that describes the output schema in the mode `prompted`."""
    prompter: Prompter | None
    """Reader of the input of a run, if the chain was created with a prompter."""

    @overload
    def __init__(
        self,
        model: Model | str,
        layers: Layers | Prompter | AnyPrompt = ...,
        *,
        output: TypeForm[Output] = ...,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model | str,
        layers: Layers | Prompter | AnyPrompt = ...,
        *,
        output: OutputSpec[Output] | Callable[..., Awaitable[Output]],
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model | str,
        layers: Layers | Prompter | AnyPrompt = ...,
        *,
        output: Callable[..., Output],
        **options: Unpack[_Options],
    ) -> None: ...
    def __init__(
        self,
        model: Model | str,
        layers: Layers | Prompter | AnyPrompt = "",
        *,
        output: Any = str,
        counter: TokenCounter | None = None,
        budget: int | Budget | None = None,
        redact: Callable[[Composition], Composition] | None = None,
    ) -> None:
        if isinstance(model, str):
            from agentkit.models.model_names import model as model_of_name

            model = model_of_name(model)
        if isinstance(model, type) or not callable(getattr(model, "request", None)):
            got = brief(model, 60)
            if isinstance(model, type):
                got = f"the class: write {model.__name__}(...)"
            elif isinstance(model, Layers):
                got = "Layers: write Chain(model, layers=...)"
            raise AgentDefinitionError(f"model: {MODEL_EXPECTED}, got {got}", name="model")
        if counter is not None and not is_counter(counter):
            raise AgentDefinitionError(
                f"counter: {COUNTER_EXPECTED}, got {counter!r:.60}",
                name="counter",
                value=type(counter).__name__,
            )
        self.model = model
        self.prompter = None
        if isinstance(layers, str) and "{" not in layers:
            self.layers = _layers(layers)
        elif isinstance(layers, str | AnyPrompt):
            # Not from the cache: creating layers of a text with braces can warn, and must warn every time.
            self.layers = Layers(layers)
        elif isinstance(layers, Layers):
            self.layers = layers
        elif isinstance(getattr(layers, "layers", None), Layers):
            self.prompter, self.layers = layers, layers.layers
        else:
            raise AgentDefinitionError(
                f"layers: {LAYERS_EXPECTED}, got {kind_of(layers)}", name="layers", value=type(layers).__name__
            )
        self.output: Any = output
        self.counter = counter
        self.budget = budget
        self.redact = redact
        self.answer = _TEXT if output is str else AnswerReader(output, model)
        self.sent_layers = _with_output_prompt(self.layers, self.answer.prompt)
        self._fenced: bool | None = None
        self._requires_kwargs: bool | None = None
        self._declares_tools: bool | None = None
        self._requires_clock: bool | None = None

    @property
    def output_schema(self) -> JsonSchema | None:
        """JSON Schema of the answer, or of the arguments of the output function; None for text."""
        return self.answer.schema

    @property
    def fenced(self) -> bool:
        """True if a prompt is fenced, which requires a session key."""
        if self._fenced is None:
            self._fenced = any(prompt.fence for _, prompt in self.layers.walk())
        return self._fenced

    @property
    def requires_clock(self) -> bool:
        """True if the chat template of the model cannot be rendered without the time of the run."""
        if self._requires_clock is None:
            self._requires_clock = requires_clock(self.model)
        return self._requires_clock

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """JSON Schema of the required `additional_kwargs`, with `x-required-by` per property."""
        return self.layers.additional_kwargs_schema

    def preflight(self, user_input: UserInput | str | Mapping[str, Any]) -> None:
        """Check that the input contains every additional kwarg of the prompts, before any recall or model call.

        Raises:
            KwargsError: Kwargs are missing or invalid. The error lists all problems, with the prompts that require
                them.
        """
        if self._requires_kwargs is None:
            self._requires_kwargs = any(
                prompt.additional_kwargs_schema is not None
                or type(prompt).kwargs_problems is not BasePrompt.kwargs_problems
                for _, prompt in self.layers.walk()
            )
        if not self._requires_kwargs:
            return
        if isinstance(user_input, Mapping):
            user_input = UserInput(**user_input)
        if isinstance(user_input, UserInput):
            self.layers.check_kwargs(user_input.additional_kwargs)
        else:
            self.layers.check_kwargs({})

    def compose(self, ctx: PromptContext, *, cache: RenderCache | None = None) -> Composition:
        """Return the composition of `ctx`, redacted and fitted to the model, without sending it."""
        declares = self._declares_tools
        if declares is None:
            from agentkit_prompts.composition.targets.tools_in_text import shows_tools

            # The request declares the tools, unless a prompt shows the tools and the model has no field for tools.
            has_field: bool = getattr(self.model, "has_place_for_tools", True)
            declares = self._declares_tools = has_field or not shows_tools(self.sent_layers)
        composition = compose(
            self.sent_layers,
            ctx,
            budget=self.budget,
            counter=self.counter,
            cache=cache,
            output_schema=self.answer.request,
            declares_tools=declares,
            text_tokens=text_tokens_of(self.model),
        )
        if self.redact is not None:
            composition = self.redact(composition)
        return fitted(self.model, composition)

    @short_errors
    async def run(
        self,
        ctx: PromptContext | SlotValues,
        *,
        history: History | None = None,
        tools: Tools | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Output:
        """Compose, send once, and return the answer.

        With a prompter the input can be a dict of its slots, and the prompter reads `history` and `tools`; a
        `PromptContext` is used unchanged.

        Raises:
            PromptError: The prompt cannot be rendered, or kwargs are missing.
            ModelError: The model returned no reply.
            OutputError: The answer does not match the output type.
        """
        if self.prompter is not None and not isinstance(ctx, PromptContext):
            ctx = self.prompter.context(ctx, history, tools)
        elif history is not None or tools is not None:
            name = "tools"
            if history is not None:
                name = "history"
            raise PrompterError(
                "history= and tools= are for a chain with a prompter: put them into the PromptContext", name=name
            )
        if not isinstance(ctx, PromptContext):
            ctx = PromptContext(user_input=cast(UserInput, ctx))
        self.preflight(ctx.user_input)
        if needs_selection(self.layers):
            ctx = ctx.evolve(selections=await self.selections(ctx))
        if self.answer.tool is not None or self.answer.validators:
            raise AgentDefinitionError(
                "output functions and validators run in an agent: use Agent(chain).run(...)", name="output"
            )
        reply = await self.model.request(self.compose(ctx), on_delta=_texts_only(on_text))
        return self.parse(self.answer.reply(reply))

    def run_sync(
        self,
        ctx: PromptContext | SlotValues,
        *,
        history: History | None = None,
        tools: Tools | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Output:
        """Compose, send once, and return the answer, from synchronous code. See `run`."""
        return run_blocking(self.run(ctx, history=history, tools=tools, on_text=on_text))

    async def selections(self, ctx: PromptContext) -> tuple[Selection, ...]:
        """Return the selected examples. Async selectors are awaited here, because rendering is synchronous."""
        from agentkit_prompts.composition.select_examples import select_examples

        return (await select_examples(self.layers, ctx)).selections

    def parse(self, reply: Reply) -> Output:
        """Return the answer of a reply as the output type. Output functions and validators are not called.

        Raises:
            OutputError: The answer does not match the output type; the message contains the reason.
        """
        output: Output = self.answer.read(reply)
        return output


def _with_output_prompt(layers: Layers, prompt: BasePrompt | None) -> Layers:
    """Return the layers with the output prompt at the end of `system`, unless a prompt of the layers has its name."""
    if prompt is None or any(other.name == prompt.name for _, other in layers.walk()):
        return layers
    # A provider can cache the text before the first volatile prompt. The output prompt comes last, so that it is at
    # least as volatile as the prompts before it.
    most_volatile = max((prompt, *layers.system), key=lambda other: RANKS[volatility_of(other)])
    output_prompt = prompt.model_copy(update={"volatility": volatility_of(most_volatile)})
    return layers.model_copy(update={"system": (*layers.system, output_prompt)})


@lru_cache(maxsize=256)
def _layers(system: str) -> Layers:
    """Return the layers of a system text, shared by all chains with this text: layers are immutable."""
    if not system:
        return Layers()
    return Layers(system)


def _texts_only(on_text: Callable[[str], None] | None) -> OnDelta | None:
    """Return a function that forwards the text of deltas to `on_text`."""
    if on_text is None:
        return None

    def on_delta(delta: Delta) -> None:
        if delta.kind in ("text", "refusal"):
            on_text(delta.text)

    return on_delta
