"""`AdditionalInfoPrompt`: the structured data that a user or an upstream system sends along with the input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.context.prompt_context import CONTEXT_NAMES, PromptContext
from agentkit_prompts.errors import KwargsError, LiteralTextWarning, PromptError
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.template import Template, schema_of_names
from agentkit_prompts.tree.leaves import FIELD, default_template
from agentkit_prompts.tree.prompt import BasePrompt, has_own_code, render_values

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema, Problem


class AdditionalInfoPrompt(BasePrompt):
    """Prompt that shows `user_input.additional_kwargs`; its template reads each kwarg by its name.

    `template.params_schema` declares the kwargs and their defaults. Without a schema, every name that the template
    reads and that is not a name of the context is a required kwarg.
    """

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for name, value in additional_kwargs.items() %}{% if not loop.first %}\n{% endif %}"
            "{{ name }}: {{ value }}{% endfor %}"
        ),
        kw_only=False,
    )

    def _check(self) -> None:
        super()._check()
        if self.template.params_schema is not None:
            conflicts = CONTEXT_NAMES & set(self._properties)
            if conflicts:
                advice = "choose another name"
                if "locale" in conflicts:
                    advice += ", or remove it and pass the language of the run as locale=, or `locale` in a request"
                raise PromptError(
                    f"{self.label}: {', '.join(sorted(conflicts))} cannot be the name of an additional kwarg: "
                    f"templates read these names from the context: {', '.join(sorted(CONTEXT_NAMES))}; {advice}",
                    name=", ".join(sorted(conflicts)),
                )
        text = self.template.text
        if not self.template.names and isinstance(text, str) and (field := FIELD.search(text)):
            warn(
                f"{field[0][:60]!r} is sent unchanged: write a template variable as {{{{ {field[1][:60]} }}}}",
                LiteralTextWarning,
            )

    @property
    def _properties(self) -> Mapping[str, Any]:
        schema = self.additional_kwargs_schema or {}
        return schema.get("properties", {})  # type: ignore[no-any-return]  # an object in JSON Schema

    def _additional_names(self) -> frozenset[str]:
        if self.template.params_schema is None:
            return frozenset(self.template.names)
        return frozenset((self.template.json_schema or {}).get("properties", {}))

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """The params schema of the template; without it, a schema inferred from the names that the template reads."""
        if self.template.params_schema is not None:
            return self.template.json_schema
        # Names that the context lacks are kwargs. A template can also read a kwarg as `additional_kwargs.NAME`.
        names = {name: name in self.template.required for name in self.template.names if name not in CONTEXT_NAMES}
        read = super().additional_kwargs_schema or {}
        for name in read.get("properties", {}):
            names.setdefault(name, name in read.get("required", ()))
        return schema_of_names(names)

    def kwargs_problems(self, kwargs: Mapping[str, Any]) -> list[Problem]:
        """Return the problems of `kwargs`, checked by the params schema, else by the inferred schema."""
        if self.template.params_schema is not None:
            return self.template.problems(kwargs)
        return super().kwargs_problems(kwargs)

    @property
    def reads(self) -> frozenset[str] | None:
        """`additional_kwargs`, and the context names that the template reads."""
        if has_own_code(self):
            return None
        return (CONTEXT_NAMES & self.template.reads) | {"additional_kwargs"}

    def values(self, ctx: PromptContext) -> Mapping[str, Any]:
        """Return each additional kwarg under its name, and the values of the context, which have precedence."""
        return ctx.user_input.additional_kwargs | ctx.view

    def render(self, ctx: PromptContext) -> Rendered:
        """Render the kwargs.

        Raises:
            KwargsError: Names every kwarg that is missing or invalid.
        """
        kwargs = ctx.user_input.additional_kwargs
        places = {name: f"additional_kwargs.{name}" for name in self.template.names if name not in CONTEXT_NAMES}
        if self.template.params_schema is not None or not places.keys() <= kwargs.keys():
            problems = self.kwargs_problems(kwargs)
            if problems:
                raise KwargsError({name: (problem, ()) for name, problem in problems})
        return render_values(self, self.values(ctx), ctx, places)
