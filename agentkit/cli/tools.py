"""The tools of the agent that `agentkit chat` talks to: they read nothing, write nothing and always end."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias
from zoneinfo import ZoneInfo

from agentkit_tools.errors import ToolError
from agentkit_tools.tool import tool

__all__ = ["calculate", "current_time"]

Number: TypeAlias = int | float

_LONGEST = 200
"""Characters of an expression."""
_BITS = 2048
"""Size of a whole number, in bits: about 600 digits."""

_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Number], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**"})


@tool
def calculate(expression: str) -> str:
    """Work out an arithmetic expression exactly.

    Args:
        expression: Numbers, + - * / // % ** and parentheses, such as (3 + 4) * 2.5.
    """
    if len(expression) > _LONGEST:
        raise ToolError(f"the expression has {len(expression)} characters, at most {_LONGEST} are read: split it")
    try:
        parsed = ast.parse(expression.strip().translate(_SPELLINGS), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"{expression!r} is no arithmetic expression: write it like (3 + 4) * 2.5") from error
    try:
        return str(_value(parsed.body))
    except (ArithmeticError, ValueError) as error:
        raise ToolError(f"{expression!r} has no value: {error}") from error


def _value(node: ast.expr) -> Number:
    """Return the value of a node; what is not arithmetic is refused, and so is what would not end."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _checked(node.value)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and isinstance(left, int) and left.bit_length() * abs(right) > _BITS:
            raise ToolError(f"a power with more than {_BITS} bits is too large")
        return _checked(_BINARY[type(node.op)](left, right))
    raise ToolError(f"{ast.unparse(node)!r} is not arithmetic: only numbers, + - * / // % ** and parentheses are known")


def _checked(value: object) -> Number:
    if isinstance(value, int) and value.bit_length() <= _BITS:
        return value
    if isinstance(value, float):
        return value
    raise ToolError("the value is no real number" if isinstance(value, complex) else "the value is too large")


@tool
def current_time(zone: str = "UTC") -> str:
    """Tell the date and time.

    Args:
        zone: Name of a time zone, such as Europe/Berlin.
    """
    try:
        now = datetime.now(ZoneInfo(zone))
    except (LookupError, OSError, ValueError) as error:
        raise ToolError(f"{zone!r} is no time zone known here: give one such as Europe/Berlin, or UTC") from error
    return f"{now:%A}, {now.isoformat(sep=' ', timespec='seconds')}"
