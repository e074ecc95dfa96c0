"""`calculate`: arithmetic on exact fractions of limited size, so that each call returns quickly."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow, Underflow
from fractions import Fraction
from math import ceil, floor, isqrt
from typing import Annotated

from agentkit_tools.errors import ToolError
from agentkit_tools.tool import tool

_MAX_CHARS = 200
"""Maximum characters of an expression."""
_BITS = 4096
"""Maximum bits of a numerator or denominator: about 1,200 digits."""
_DIGITS = 30
"""Digits of a rounded value."""

_TRAPS = [DivisionByZero, InvalidOperation, Overflow, Underflow]
_EXACT_ENOUGH = Context(prec=_DIGITS + 20, Emax=1200, Emin=-1200, traps=_TRAPS)
_SHOWN = Context(prec=_DIGITS, Emax=9999, Emin=-9999)
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**"})
_EXPONENT = re.compile(r"e([+-]?\d+)", re.IGNORECASE)
_CONSTANTS = {
    "pi": Fraction("3.14159265358979323846264338327950288419716939937510"),
    "e": Fraction("2.71828182845904523536028747135266249775724709369996"),
}


_ABOUT = """\
Evaluate an arithmetic expression: exactly if possible, otherwise rounded to 30 digits ("about").

Knows + - * / // % ** and parentheses, pi, e, and abs, ceil, exp, floor, ln, log10, max, min, round, sqrt. `%` is
the remainder, `round` takes a number of decimals and rounds halves away from zero. Cannot use variables, units,
trigonometry or complex numbers, and refuses numbers of more than about 1,200 digits."""


@tool(description=_ABOUT)
def calculate(expression: Annotated[str, "Such as (3 + 4) * 2.5, or round(2 / 3, 2)."]) -> str:
    """Evaluate an arithmetic expression."""
    if len(expression) > _MAX_CHARS:
        raise ToolError(f"the expression has {len(expression)} characters, at most {_MAX_CHARS} are read: split it")
    source = expression.strip().translate(_SPELLINGS)
    try:
        body = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"{expression!r} is not an arithmetic expression: write it like (3 + 4) * 2.5") from error
    try:
        return _formatted(_value(body, source))
    except (ArithmeticError, ValueError) as error:
        raise ToolError(f"{expression!r} has no value: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return the reason why an expression has no value."""
    if isinstance(error, Overflow | Underflow):
        return "it is too large or too small"
    if isinstance(error, ZeroDivisionError):
        return "it divides by zero"
    if isinstance(error, ArithmeticError):
        return "it is not a real number"
    return str(error)


def _value(node: ast.expr, source: str) -> Fraction:
    """Return the value of a node.

    Raises:
        ToolError: The node is not arithmetic, or its value is too large.
    """
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _checked(_literal(node, source))
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand, source))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        operands = _value(node.left, source), _value(node.right, source)
        return _checked(_BINARY[type(node.op)](*operands))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        return _value_of_call(node, node.func.id, source)
    raise ToolError(f"{ast.unparse(node)!r} is not arithmetic: only numbers, + - * / // % **, pi, e and {_NAMES}")


def _literal(node: ast.Constant, source: str) -> Fraction:
    """Return a number as it is written: 0.1 is a tenth, not the nearest float."""
    if isinstance(node.value, int):
        return Fraction(node.value)
    text = ast.get_source_segment(source, node) or repr(node.value)
    # A fraction is built with all digits of its exponent.
    exponent = _EXPONENT.search(text)
    if exponent is not None and abs(int(exponent[1])) > 1200:
        raise ToolError(f"{text} is too large or too small")
    return Fraction(text.replace("_", ""))


def _value_of_call(node: ast.Call, name: str, source: str) -> Fraction:
    function, minimum, maximum = _FUNCTIONS[name]
    if node.keywords or not minimum <= len(node.args) <= maximum:
        raise ToolError(f"{name} takes {_count(minimum, maximum)}, got {ast.unparse(node)!r}")
    return _checked(function(*[_value(argument, source) for argument in node.args]))


def _count(minimum: int, maximum: int) -> str:
    if maximum == 1:
        return "1 number"
    if maximum == _MAX_ARGUMENTS:
        return f"{minimum} or more numbers"
    return f"{minimum} to {maximum} numbers"


def _checked(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _BITS:
        raise ToolError("an intermediate result is too large")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        if base < 0:
            raise ValueError("it is not a real number")
        return _decimal(_EXACT_ENOUGH.power, base, exponent)
    whole = exponent.numerator
    # Powers of 1 and -1 depend on the parity of the exponent, however large it is.
    if abs(base) == 1:
        whole %= 2
    # Estimate the size before the computation: 9 ** 9 ** 9 would not finish.
    elif base and max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(whole) > 2 * _BITS:
        raise ToolError("a power is too large")
    return Fraction(base**whole)


def _decimal(function: Callable[..., Decimal], *values: Fraction) -> Fraction:
    """Apply a function without an exact value."""
    decimals = [_EXACT_ENOUGH.divide(Decimal(value.numerator), Decimal(value.denominator)) for value in values]
    return Fraction(function(*decimals))


def _sqrt(value: Fraction) -> Fraction:
    if value < 0:
        raise ValueError("it is not a real number")
    root = Fraction(isqrt(value.numerator), isqrt(value.denominator))
    if root * root == value:
        return root
    return _decimal(_EXACT_ENOUGH.sqrt, value)


def _round(value: Fraction, places: Fraction = Fraction(0)) -> Fraction:
    if places.denominator != 1 or abs(places) > 300:
        raise ValueError("round takes a whole number of decimals, at most 300")
    scale = Fraction(10) ** places.numerator
    rounded = Fraction(floor(abs(value) * scale + Fraction(1, 2))) / scale
    if value < 0:
        return -rounded
    return rounded


_UNARY: dict[type[ast.unaryop], Callable[[Fraction], Fraction]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_MAX_ARGUMENTS = 100
_FUNCTIONS: dict[str, tuple[Callable[..., Fraction], int, int]] = {
    "abs": (lambda value: Fraction(abs(value)), 1, 1),
    "ceil": (lambda value: Fraction(ceil(value)), 1, 1),
    "exp": (lambda value: _decimal(_EXACT_ENOUGH.exp, value), 1, 1),
    "floor": (lambda value: Fraction(floor(value)), 1, 1),
    "ln": (lambda value: _decimal(_EXACT_ENOUGH.ln, value), 1, 1),
    "log10": (lambda value: _decimal(_EXACT_ENOUGH.log10, value), 1, 1),
    "max": (lambda *values: Fraction(max(values)), 1, _MAX_ARGUMENTS),
    "min": (lambda *values: Fraction(min(values)), 1, _MAX_ARGUMENTS),
    "round": (_round, 1, 2),
    "sqrt": (_sqrt, 1, 1),
}
"""Functions with the minimum and maximum number of their arguments."""
_NAMES = ", ".join(_FUNCTIONS)


def _formatted(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    context = _SHOWN.copy()
    quotient = context.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize(context)
    text = str(quotient)
    # Numbers of usual size are written without an exponent.
    if -20 < quotient.adjusted() < _DIGITS:
        text = format(quotient, "f")
    if context.flags[Inexact]:
        return f"about {text}"
    return text
