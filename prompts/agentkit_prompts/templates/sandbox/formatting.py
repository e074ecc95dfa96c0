"""`str.format` in templates: fields with a limited width, and values read through the sandbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2.sandbox import SandboxedEnvironment, SandboxedEscapeFormatter, SandboxedFormatter

from agentkit_prompts.templates.sandbox.guards import check_format_spec
from agentkit_prompts.templates.sandbox.meter import Meter, refuse_large
from agentkit_prompts.templates.sandbox.operation_errors import TemplateOperationError


class BoundFormat:
    """The method `format` or `format_map` of a text, ready to be called.

    Args:
        environment: Environment that reads attributes and elements of values.
        template: The text with fields.
        name: Name of the method.
        shown: Function that returns the text of a value, unless a number has a format; by default Python formats all
            values.
    """

    __slots__ = ("_environment", "_name", "_shown", "_template")

    def __init__(
        self,
        environment: SandboxedEnvironment,
        template: str,
        name: str,
        shown: Callable[[Meter, Any], str] | None = None,
    ) -> None:
        self._environment = environment
        self._template = template
        self._name = name
        self._shown = shown

    def run(self, meter: Meter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the filled text."""
        template = self._template
        if self._name == "format_map":
            if len(args) != 1 or kwargs:
                raise TypeError("format_map() takes exactly one argument")
            (kwargs,) = args
            args = ()
        escape = getattr(template, "escape", None)
        if escape is None:
            return _Formatter(self._environment, meter, self._shown).vformat(str.__str__(template), args, kwargs)
        # Only `Markup`, which escapes values, has this attribute.
        formatter = _EscapeFormatter(self._environment, meter, self._shown, escape=escape)
        return type(template)(formatter.vformat(template, args, kwargs))


class _Formatter(SandboxedFormatter):
    def __init__(
        self,
        environment: SandboxedEnvironment,
        meter: Meter,
        shown: Callable[[Meter, Any], str] | None,
        **options: Any,
    ) -> None:
        super().__init__(environment, **options)
        self._meter = meter
        self._shown = shown

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        # Each step of `{0[a].b}` reads an attribute or element.
        self._meter.visit(1 + field_name.count(".") + field_name.count("["))
        return super().get_field(field_name, args, kwargs)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if self._shown is not None and conversion not in (None, "s"):
            raise TemplateOperationError(
                f"!{conversion} in a format shows Python code: use a format without a conversion"
            )
        self._meter.deep(value)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        check_format_spec(format_spec)
        refuse_large(value)
        self._meter.deep(value)
        if self._shown is not None and not (isinstance(value, int | float) and format_spec):
            value = self._shown(self._meter, value)
        result = super().format_field(value, format_spec)
        self._meter.make(len(result))
        return result


class _EscapeFormatter(_Formatter, SandboxedEscapeFormatter):
    pass
