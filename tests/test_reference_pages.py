"""Pages of the reference: each public module has a page, which shows each parameter with its default and meaning."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import griffe

from agentkit import Agent
from tests.paths import DOORS, ROOT

sys.path.insert(0, str(ROOT / "docs"))
import reference_pages

MODULE = '''
from typing import TypedDict, Unpack, overload

_LIMIT = 3


class Options(TypedDict, total=False):
    colour: str
    """Name of the colour."""


class Base:
    size: int = 1
    """Size in pixels."""


class Shape(Base):
    """A shape.

    Args:
        name: Name of the shape.

    Raises:
        ValueError: The name is empty.
    """

    @overload
    def __init__(self, name: str) -> None: ...
    @overload
    def __init__(self, name: bytes, **options: Unpack[Options]) -> None: ...
    def __init__(self, name: str | bytes = "box", *, limit: int = _LIMIT, **options: Unpack[Options]) -> None: ...

    async def draw(self, scale: float, /) -> None:
        """Draw the shape.

        ```python
        shape.draw(2)
        ```
        """
'''
PAGE = """\
## Shape

```py
Shape(name='box', *, limit=3, **options)
```

A shape.

- `name` (`str | bytes`, default `'box'`): Name of the shape.
- `limit` (`int`, default `3`)
- `colour` (`str`): Name of the colour.

Raises:

- `ValueError`: The name is empty.

Attributes:

- `size` (`int`, default `1`): Size in pixels.

### Shape.draw

```py
async draw(scale, /) -> None
```

Draw the shape.

```py
shape.draw(2)
```

- `scale` (`float`)"""


def test_each_public_module_has_a_page_in_the_navigation() -> None:
    listed = re.findall(r"^ +- reference/(.+)\.md$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(reference_pages.DOORS) == DOORS


def test_a_class_is_shown_with_each_parameter_its_default_and_its_meaning(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(MODULE, "utf-8")
    loader = griffe.GriffeLoader(search_paths=[tmp_path], docstring_parser=griffe.Parser.google)
    loader.load("shapes")
    writer = reference_pages.Writer(loader.modules_collection, {})
    shape = loader.modules_collection["shapes.Shape"]
    assert "\n\n".join(writer.class_entry("Shape", shape)) == PAGE


def test_the_help_of_an_agent_describes_each_parameter() -> None:
    described = re.findall(r"^ {8}(\w+): \S", inspect.getsource(Agent).split("Raises:")[0], re.MULTILINE)
    assert described == [*inspect.signature(Agent).parameters]
    assert "Unpack" not in str(inspect.signature(Agent))
