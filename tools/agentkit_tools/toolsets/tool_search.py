"""`ToolSearch`: search of a large toolset by the model, which receives the matching tools."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Annotated, Any, cast

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import shortened
from agentkit_prompts.limits import MAX_REASON_CHARS
from agentkit_prompts.names import nearest
from agentkit_prompts.ranking.bm25 import BM25, words
from agentkit_tools.calling.tool_policy import check_counts
from agentkit_tools.tool import Tool
from agentkit_tools.toolsets.toolset import DynamicToolset, ToolLike, Toolset, by_name

SEARCH_TOOL = "search_tools"
"""Name of the search tool."""
_MAX_MESSAGES = 200
"""Maximum messages before the step whose search results are offered."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SENTENCE = re.compile(r"(?<=[.!?])\s")


class ToolSearch:
    """A large toolset that needs as little prompt as a small toolset: the model searches tools, then calls them.

    Each step offers `search_tools`, the tools in `always`, and the tools that earlier steps of this run or recent turns
    of the session found. Tools are ranked by BM25 over their names, descriptions and parameters.

    Args:
        tools: A list, a toolset, or a dynamic toolset such as an `MCPToolset`.
        always: Tools that are always offered.
        about: Purpose of the tools, in words for the model, which has no other information before a search.
        results: Maximum results of one search.
        maximum: Maximum found tools in a step; the latest results are offered.

    Raises:
        ToolDefinitionError: Two tools have the same name, a tool is named `search_tools`, or a number is below 1.
    """

    __slots__ = ("_about", "_always", "_index", "_maximum", "_results", "_source")

    per_step = True
    """True: the tools of a step depend on the searches of earlier steps."""

    def __init__(
        self,
        tools: Iterable[ToolLike] | DynamicToolset,
        *,
        always: Iterable[ToolLike] = (),
        about: str = "",
        results: int = 5,
        maximum: int = 20,
    ) -> None:
        check_counts("ToolSearch", results=(results, 1), maximum=(maximum, 1))
        self._always = Toolset(always)
        self._about = about
        self._results, self._maximum = results, maximum
        self._index: _Index | None = None
        self._source: Any = tools
        # Dynamic toolsets, such as the toolset of an MCP server, can change; other tools are indexed once.
        is_dynamic = hasattr(tools, "at") and type(tools) is not Toolset
        if not is_dynamic:
            self._source = Toolset(cast(Iterable[ToolLike], tools))
            self._index = self._new_index(self._source)

    async def at(self, context: PromptContext) -> Toolset:
        """Return the tools of one step: the search, the tools in `always`, and the found tools."""
        source = await self._source.at(context)
        index = self._index
        if index is None or index.tools != tuple(source):
            index = self._index = self._new_index(source)
        return Toolset([index.search, *self._always, *islice(index.found(context), self._maximum)])

    def _new_index(self, tools: Toolset) -> _Index:
        # Report equal names here, not when a search finds both tools.
        by_name([*tools, *self._always])
        return _Index(tuple(tools), self._about, self._results)


class ToolIndex:
    """Index of tools by the words of their names, descriptions and parameters."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tools
        self._names = {tool.name: tool for tool in tools}
        self._bm25 = BM25([_text(tool) for tool in tools], tokenize=_terms)

    def matches(self, query: str, maximum: int) -> list[Tool]:
        """Return the tools that fit a query, at most `maximum`, the best first."""
        scores = self._bm25.scores(query)
        ranked = sorted(range(len(scores)), key=lambda position: -scores[position])
        matches = [self._tools[position] for position in ranked[:maximum] if scores[position] > 0]
        exact = self._names.get(query.strip())
        # A tool with exactly the searched name is a match, independent of its score.
        if exact is not None and exact not in matches:
            matches = [exact, *matches[: maximum - 1]]
        return matches


class _Index:
    """Index of tools, and the tool that searches it."""

    def __init__(self, tools: tuple[Tool, ...], about: str, results: int) -> None:
        self.tools = tools
        self._names = {tool.name: tool for tool in tools}
        self._index = ToolIndex(tools)
        self._results = results
        among = f"{len(tools):,}"
        if about:
            among += f": {about}"
        self.search = Tool(
            self._search,
            name=SEARCH_TOOL,
            description=f"Find tools by their purpose, among {among}. The tools that it finds can be called next.",
        )
        by_name([*tools, self.search])

    async def _search(
        self, query: Annotated[str, "What the tool should do, in a few words, or its name."]
    ) -> dict[str, Any]:
        matches = self._index.matches(query, self._results)
        if matches:
            return {
                "tools": [{"name": tool.name, "description": _first_sentence(tool.description)} for tool in matches]
            }
        return {"tools": [], "note": f"no tool has these words{nearest(query, self._names)}: use other words"}

    def found(self, context: PromptContext) -> Iterator[Tool]:
        """Yield the tools that earlier searches found, the latest first, without repetition."""
        seen: set[str] = set()
        latest = chain(reversed(context.intermediate), reversed(context.conversation))
        for message in islice(latest, _MAX_MESSAGES):
            for name in _names_in(message):
                if name in self._names and name not in seen:
                    seen.add(name)
                    yield self._names[name]


def _names_in(message: Message) -> list[str]:
    """Return the names of the found tools if the message is the result of a search."""
    if message.role != "tool" or message.name != SEARCH_TOOL:
        return []
    try:
        return [tool["name"] for tool in json.loads(message.text)["tools"]]
    except (ValueError, TypeError, KeyError):
        # The search failed, so its message is not a list of tools.
        return []


def _text(tool: Tool) -> str:
    """Return the indexed text of a tool. The name counts twice."""
    parts = [tool.name, tool.original_name, tool.description]
    properties = tool.spec.parameters.get("properties")
    # A schema from elsewhere can have any JSON here.
    if not isinstance(properties, Mapping):
        properties = {}
    for name, item in properties.items():
        parts.append(name)
        if isinstance(item, Mapping):
            parts.append(str(item.get("description", "")))
    return " ".join(parts)


def _terms(text: str) -> list[str]:
    """Return the words of a text in the singular; names in camel case and with underscores are split."""
    terms: list[str] = []
    for word in words(_CAMEL.sub(" ", text).replace("_", " ")):
        if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
            word = word[:-1]
        terms.append(word)
    return terms


def _first_sentence(text: str) -> str:
    return shortened(_SENTENCE.split(text.strip(), 1)[0], MAX_REASON_CHARS)
