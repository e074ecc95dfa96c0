"""`page_blocks`: the blocks of an HTML page, as a person sees it.

The parser is lxml. It receives pieces and builds no tree, so that the memory does not depend on the size of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentkit_prompts.pages.page_blocks import Block
from agentkit_prompts.pages.page_target import PageTarget

_MAX_TAG = 8 * 1024 * 1024
"""Maximum bytes of one tag or comment, which the parser stores in memory."""


class LongTagError(ValueError):
    """A tag or comment of a page is too long. `position` is the number of bytes of the page so far."""

    def __init__(self, position: int) -> None:
        limit = _MAX_TAG // 2**20
        super().__init__(f"has a tag or comment of more than {limit} MiB before byte {position}; repair it")
        self.position = position


def page_blocks(pieces: Iterable[str]) -> Iterator[Block]:
    """Yield the blocks of a page that is given in pieces.

    Raises:
        ImportError: lxml is not installed.
        LongTagError: A tag or comment is too long.
    """
    from lxml import etree  # pyright: ignore[reportAttributeAccessIssue] - it has no types

    page = PageTarget()
    parser = etree.HTMLParser(target=page, encoding="utf-8", remove_comments=True)
    # Bytes since the parser has called the target, and all bytes.
    silent = fed = 0
    for text in pieces:
        data = text.encode("utf-8", "replace")
        fed += len(data)
        page.is_silent = True
        if data:
            parser.feed(data)
        silent += len(data)
        if not page.is_silent:
            silent = 0
        if silent > _MAX_TAG:
            raise LongTagError(fed)
        yield from page.take()
    if fed:
        parser.close()
    page.end_page()
    yield from page.take()


def page_text(source: str) -> str:
    """Return the text of a page: its title, and a line or more for each block.

    Raises:
        ImportError: lxml is not installed.
        LongTagError: A tag or comment is too long.
    """
    lines: list[str] = []
    for block in page_blocks([source]):
        text = block.text.strip("\n")
        if not lines and not text:
            text = block.title
        if block.continues and lines:
            lines[-1] += text
        elif text:
            lines.append(text)
    return "\n".join(lines)
