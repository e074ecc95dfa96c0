"""The parts of a docstring that a model reads: the information to call the tool, unchanged."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from agentkit.tools import Tool

NUMPY = """Compare two samples.

The variances are taken to be equal [1]_.

Parameters
----------
policy : {'raise', 'omit'}
    What happens to gaps:

    * 'raise': it is an error
      for the caller
    * 'omit': they are left out

    Other words are refused.
a, b : float
    A sample,
    or two.

Returns
-------
float
    How alike they are:

    - 0: not at all
    - 1: quite

See Also
--------
essay : something else

Notes
-----
ESSAY [1]_ that nobody needs.

References
----------
.. [1] ESSAY, a book.

Examples
--------
>>> compare(1, 2)  # ESSAY
"""
GOOGLE = """Compare two samples.

The variances are taken to be equal.

Args:
    policy: What happens to gaps:

        * 'raise': it is an error
          for the caller
        * 'omit': they are left out

        Other words are refused.
    a: A sample,
        or two.
    b: A sample,
        or two.

Returns:
    float: How alike they are:

        - 0: not at all
        - 1: quite

See Also:
    ESSAY

Notes:
    ESSAY

    More ESSAY.

References:
    [1] ESSAY

Example:
    ESSAY()
"""
SPHINX = """Compare two samples.

The variances are taken to be equal [#one]_.

>>> compare(1, 2)
ESSAY

:param policy: What happens to gaps:

    * 'raise': it is an error
      for the caller
    * 'omit': they are left out

    Other words are refused.
:param float a: A sample,
    or two.
:param float b: A sample,
    or two.
:returns: How alike they are:

    - 0: not at all
    - 1: quite

.. seealso:: ESSAY

.. rubric:: Examples

ESSAY()

.. [#one] ESSAY
"""


class Description(NamedTuple):
    """The parts of a docstring that a model reads."""

    text: str
    parameters: dict[str, str]


def read_docstring(text: str) -> Description:
    """Return the description of a tool and of its parameters, from a function with this docstring."""

    def act(policy: Any = None, a: Any = None, b: Any = None) -> None: ...

    act.__doc__ = text
    spec = Tool(act).spec
    described = {name: one["description"] for name, one in spec.parameters["properties"].items() if len(one) > 1}
    return Description(spec.description, described)


@pytest.mark.parametrize("text", [NUMPY, GOOGLE, SPHINX])
def test_sections_for_readers_of_the_code_are_removed_and_lists_stay(text: str) -> None:
    found = read_docstring(text)
    assert found.text == (
        "Compare two samples.\n\nThe variances are taken to be equal.\n\n"
        "Returns: How alike they are:\n\n- 0: not at all\n- 1: quite"
    )
    options = "* 'raise': it is an error\n  for the caller\n* 'omit': they are left out"
    assert found.parameters == {
        "policy": f"What happens to gaps:\n\n{options}\n\nOther words are refused.",
        "a": "A sample,\nor two.",
        "b": "A sample,\nor two.",
    }


@pytest.mark.parametrize(
    "heading",
    ["Examples\n========", "# Examples", "## See also", "Notes\n-----", "References\n~~~~~~~~~~", ".. rubric:: Notes"],
)
def test_headings_of_other_notations_are_understood_in_prose(heading: str) -> None:
    assert read_docstring(f"Act.\n\n{heading}\n\nESSAY\n\nESSAY").text == "Act."
    assert read_docstring(f"Act.\n\n{heading}\n\nESSAY\n\nArgs\n----\nmore").text == "Act.\n\nArgs\n----\nmore"


@pytest.mark.parametrize("prose", ["Notes: see there.", "Examples differ.", "Read the notes\nof old.", "a >>> b"])
def test_prose_about_notes_and_examples_is_prose(prose: str) -> None:
    assert read_docstring(f"Act.\n\n{prose}").text == f"Act.\n\n{prose}"


def test_attributes_describe_the_fields_of_a_class() -> None:
    class Box:
        """Make a box.

        Attributes:
            width: In metres.
        """

        def __init__(self, width: float) -> None:
            self.width = width

    properties: dict[str, Any] = dict(Tool(Box).spec.parameters["properties"])
    assert properties == {"width": {"type": "number", "description": "In metres."}}


@pytest.mark.parametrize(
    "text",
    [
        "Act.\nArgs:\n    a, b: Text.\n\nMore.",
        "Act.\n\nargs:\n  a (dict[str, int]): Text.\n  b (Literal['x:y']): Text.\n\nMore.",
        "Act.\n\nArguments:\n    - a: Text.\n    - `b` (int): Text.\n\nMore.",
        "Act.\n\nParameters:\n-----------\na: int\n  Text.\n*b\n  Text.\n\nReturn\n---\nint\n\nMore.",
        "Act.\n\n:param dict[str, int] a: Text.\n:param \\*\\*b: Text.\n:raises KeyError: No.\n\nMore.",
        "Act.\n\n:param a=1:\n    Text.\n:param b: Text.\n:type b: int\n\nMore.",
    ],
)
def test_the_same_in_unusual_notation(text: str) -> None:
    found = read_docstring(text)
    assert found.parameters == {"a": "Text.", "b": "Text."}
    assert found.text in ("Act.\n\nMore.", "Act.")


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ("dict[str, int]: How many of each.", "How many of each."),
        ("Box | None: A box,\n    or nothing.", "A box,\nor nothing."),
        ("A box with:\n    - lid: on top\n    - walls: four", "A box with:\n- lid: on top\n- walls: four"),
        ("What :meth:`read`\n    gives.", "What :meth:`read`\ngives."),
    ],
)
def test_the_text_of_returns_is_unchanged_without_its_type(returns: str, expected: str) -> None:
    assert (
        read_docstring(f"Act.\n\nReturns:\n    {returns}\n\nRaises:\n    KeyError: No.").text
        == f"Act.\n\nReturns: {expected}"
    )


def test_prose_after_the_fields_of_sphinx_is_prose() -> None:
    found = read_docstring("Act.\n\n:param a: Text\nof two lines.\n\nMore,\n:meth:`too`.\n\n:returns: A :class:`Box`.")
    assert found.parameters == {"a": "Text\nof two lines."}
    assert found.text == "Act.\n\nMore,\n:meth:`too`.\n\nReturns: A :class:`Box`."
