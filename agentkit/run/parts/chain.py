"""`Chain`: layers, a model, and the type of its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Unpack, cast, overload

from typing_extensions import TypeVar

from agentkit.errors import AgentDefinitionError
from agentkit.ground.sync_driver import run_blocking
from agentkit.ground.unknown_options import ELSEWHERE, refusing_unknown
from agentkit.models.abilities import fitted, text_tokens_of
from agentkit.output.answer import AnswerReader
from agentkit_prompts.composition.compose import RenderCache, compose
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.select_examples import needs_selection
from agentkit_prompts.context.prompt_context import PromptContext, Selection, UserInput
from agentkit_prompts.errors import PrompterError, brief
from agentkit_prompts.tokens.budget import Budget
from agentkit_prompts.tokens.counter import COUNTER_EXPECTED, TokenCounter, is_counter
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.leaves import AnyPrompt
from agentkit_prompts.tree.prompt import BasePrompt
from agentkit_prompts.tree.volatility import RANKS, volatility_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from typing_extensions import TypeForm

    from agentkit.models.model import Model, OnDelta, Reply
    from agentkit.output.output_spec import OutputSpec
    from agentkit_prompts.prompters.history import History, Tools
    from agentkit_prompts.prompters.prompter import Prompter, SlotValues
    from agentkit_prompts.schemas.params import JsonSchema

__all__ = ["Chain"]

Output = TypeVar("Output", default=str)
_TEXT = AnswerReader(str, cast(Any, None))
"""Reads text, whatever model it is asked of."""


class _Options(TypedDict, total=False):
    counter: TokenCounter | None
    budget: int | Budget | None
    redact: Callable[[Composition], Composition] | None


@refusing_unknown(**ELSEWHERE)
class Chain(Generic[Output]):
    """A prompt bound to a model: one composition in, one answer out.

    Args:
        model: Where the composition is sent.
        layers: The prompts, placed; a prompt, `Template` or str is the one of `system`. A `Prompter`
            brings its own.
        output: The type of the answer: `str`, or anything pydantic validates; a function, which is called with the
            answer and ends the run; or an `OutputSpec`, which says how it is asked for and checked. In the mode
            `prompted` the schema stands at the end of `system`, or where a prompt with the name `output` stands.
        counter: Counts tokens; a fast estimate when not given.
        budget: Tokens a composition may have at most; prompts give way by their `size`.
        redact: Sees every composition before it is sent and returns the one to send, such as
            `lambda composition: composition.mapped(mask)`. It may raise to stop the run.

    Raises:
        AgentDefinitionError: The output type cannot be described as JSON Schema, or asked for from this model.
        PromptError: A prompt can never render.
    """

    __slots__ = (
        "_asks",
        "_declares",
        "_fenced",
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
    """What is asked for as the answer, and what reads it."""
    sent_layers: Layers
    """The layers with the prompt that asks for the answer, where the output is asked for in words."""
    prompter: Prompter | None
    """What reads the input of a run, where the chain was made with one."""

    @overload
    def __init__(
        self,
        model: Model,
        layers: Layers | Prompter | AnyPrompt = ...,
        *,
        output: TypeForm[Output] = ...,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model,
        layers: Layers | Prompter | AnyPrompt = ...,
        *,
        output: OutputSpec[Output] | Callable[..., Awaitable[Output]],
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model,
        layers: Layers | Prompter | AnyPrompt = ...,
        *,
        output: Callable[..., Output],
        **options: Unpack[_Options],
    ) -> None: ...
    def __init__(
        self,
        model: Model,
        layers: Layers | Prompter | AnyPrompt = "",
        *,
        output: Any = str,
        counter: TokenCounter | None = None,
        budget: int | Budget | None = None,
        redact: Callable[[Composition], Composition] | None = None,
    ) -> None:
        if isinstance(model, type) or not callable(getattr(model, "request", None)):
            got = f"the class: write {model.__name__}(...)" if isinstance(model, type) else brief(model, 60)
            raise AgentDefinitionError(f"model: expected a model, such as OpenAIModel(...), got {got}", name="model")
        if counter is not None and not is_counter(counter):
            raise AgentDefinitionError(
                f"counter: {COUNTER_EXPECTED}, got {counter!r:.60}",
                name="counter",
                value=type(counter).__name__,
            )
        self.model = model
        self.prompter = None
        if isinstance(layers, str):
            self.layers = Layers(layers) if "{" in layers else _layers(layers)  # one with braces may warn, each time
        elif isinstance(layers, AnyPrompt):
            self.layers = Layers(layers)
        elif isinstance(layers, Layers):
            self.layers = layers
        elif isinstance(getattr(layers, "layers", None), Layers):
            self.prompter, self.layers = layers, layers.layers
        else:
            raise AgentDefinitionError(
                f"layers: expected Layers, a prompter, a prompt or text, got {type(layers).__name__}",
                name="layers",
                value=type(layers).__name__,
            )
        self.output: Any = output
        self.counter = counter
        self.budget = budget
        self.redact = redact
        self.answer = _TEXT if output is str else AnswerReader(output, model)
        self.sent_layers = _asking(self.layers, self.answer.prompt)
        self._fenced: bool | None = None
        self._asks: bool | None = None  # whether any prompt asks for additional kwargs
        self._declares: bool | None = None  # whether tools are sent beside the messages

    @property
    def output_schema(self) -> JsonSchema | None:
        """JSON Schema of the answer, or of the arguments of the function that is called with it; None for text."""
        return self.answer.schema

    @property
    def fenced(self) -> bool:
        """Whether some prompt is put between fences, which need a key of the session."""
        if self._fenced is None:
            self._fenced = any(prompt.fence for _, prompt in self.layers.walk())
        return self._fenced

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """What the prompts require of the user's `additional_kwargs`, with `x-required-by` per property."""
        return self.layers.additional_kwargs_schema

    def preflight(self, user_input: UserInput | str | Mapping[str, Any]) -> None:
        """Check that the input carries every additional kwarg the prompts need, before anything is recalled or sent.

        Raises:
            KwargsError: Names all missing and invalid kwargs at once, with the prompts that need them.
        """
        if self._asks is None:
            self._asks = any(
                prompt.additional_kwargs_schema is not None
                or type(prompt).kwargs_problems is not BasePrompt.kwargs_problems
                for _, prompt in self.layers.walk()
            )
        if not self._asks:
            return
        if isinstance(user_input, Mapping):
            user_input = UserInput(**user_input)
        kwargs = user_input.additional_kwargs if isinstance(user_input, UserInput) else {}
        self.layers.check_kwargs(kwargs)

    def compose(self, ctx: PromptContext, *, cache: RenderCache | None = None) -> Composition:
        """Return everything that would be sent for `ctx`, redacted and fitted to the model, without sending it."""
        declares = self._declares
        if declares is None:
            from agentkit_prompts.composition.targets.tools_in_text import shows_tools

            has_place: bool = getattr(self.model, "has_place_for_tools", True)
            declares = self._declares = has_place if shows_tools(self.sent_layers) else True
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
        return fitted(self.model, composition if self.redact is None else self.redact(composition))

    async def run(
        self,
        ctx: PromptContext | SlotValues,
        *,
        history: History | None = None,
        tools: Tools | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Output:
        """Compose, send once, and return the answer.

        With a prompter the input may be a dict of its slots, and `history` and `tools` are read as it reads them; a
        `PromptContext` is taken as it is.

        Raises:
            PromptError: The prompt cannot be rendered, or kwargs are missing.
            ModelError: There is no reply.
            OutputError: The answer is not the output type.
        """
        if self.prompter is not None and not isinstance(ctx, PromptContext):
            ctx = self.prompter.context(ctx, history, tools)
        elif history is not None or tools is not None:
            raise PrompterError(
                "history= and tools= are for a chain with a prompter: put them into the PromptContext",
                name="history" if history is not None else "tools",
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
        """Compose, send once, and return the answer, from code that is not async. See `run`."""
        return run_blocking(self.run(ctx, history=history, tools=tools, on_text=on_text))

    async def selections(self, ctx: PromptContext) -> tuple[Selection, ...]:
        """Return what the example selectors choose, awaiting those that need it, before the prompt is rendered."""
        from agentkit_prompts.composition.select_examples import select_examples

        return (await select_examples(self.layers, ctx)).selections

    def parse(self, reply: Reply) -> Output:
        """Return the answer of a reply as the output type. Output functions and validators are not called.

        Raises:
            OutputError: It is not; the message names the reason.
        """
        output: Output = self.answer.read(reply)
        return output


def _asking(layers: Layers, prompt: BasePrompt | None) -> Layers:
    """Return the layers with the prompt that asks for the answer at the end of `system`, unless one has its name."""
    if prompt is None or any(known.name == prompt.name for _, known in layers.walk()):
        return layers
    latest = max((prompt, *layers.system), key=lambda one: RANKS[volatility_of(one)])
    asking = prompt.model_copy(update={"volatility": volatility_of(latest)})  # the prompts before it decide caching
    return layers.model_copy(update={"system": (*layers.system, asking)})


@lru_cache(maxsize=256)
def _layers(system: str) -> Layers:
    """Share the layers of the same text: they are immutable."""
    return Layers(system) if system else Layers()


def _texts_only(on_text: Callable[[str], None] | None) -> OnDelta | None:
    """Return what passes the text of a reply on, piece by piece."""
    if on_text is None:
        return None
    return lambda delta: on_text(delta.text) if delta.kind in ("text", "refusal") else None
