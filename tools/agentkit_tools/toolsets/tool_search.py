"""`ToolSearch`: thousands of tools, of which a model is offered a search and what it found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Annotated, Any, cast

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.limits import MAX_REASON_CHARS
from agentkit_prompts.names import nearest
from agentkit_prompts.ranking.bm25 import BM25, words
from agentkit_tools.calling.tool_policy import checked
from agentkit_tools.tool import Tool
from agentkit_tools.toolsets.toolset import DynamicToolset, ToolLike, Toolset, by_name

__all__ = ["ToolSearch"]

SEARCH_TOOL = "search_tools"
"""The name of the tool that searches."""
_MAX_MESSAGES = 200
"""Messages before the step in which earlier searches are looked up."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SENTENCE = re.compile(r"(?<=[.!?])\s")


class ToolSearch:
    """A large toolset that costs as much prompt as a small one: the model finds tools by words, then calls them.

    It is offered `search_tools`, the tools in `always`, and those that it found in this run or, in a session, shortly
    before: from the step behind the search on. Tools are ranked by BM25 over their names, descriptions and parameters.

    Args:
        tools: The tools: a list or a toolset, also one that makes its tools for each run, such as an `MCPToolset`.
        always: Tools that are offered from the beginning.
        about: What the tools are for, in words for the model: all it knows of them before it searches.
        results: How many tools one search finds.
        maximum: How many found tools are offered at once; those found last are.

    Raises:
        ToolDefinitionError: Two tools have the same name, one is named `search_tools`, or a number is below 1.
    """

    __slots__ = ("_about", "_always", "_index", "_maximum", "_results", "_source")

    per_step = True
    """What is offered depends on what was found: it is asked for the tools before each step of a run."""

    def __init__(
        self,
        tools: Iterable[ToolLike] | DynamicToolset,
        *,
        always: Iterable[ToolLike] = (),
        about: str = "",
        results: int = 5,
        maximum: int = 20,
    ) -> None:
        checked("ToolSearch", "results", results, 1)
        checked("ToolSearch", "maximum", maximum, 1)
        self._always = Toolset(always)
        self._about = about
        self._results, self._maximum = results, maximum
        self._index: _Index | None = None
        self._source: Any = tools
        # Toolsets such as those of MCP servers can change; other tools are indexed once.
        is_dynamic = hasattr(tools, "at") and type(tools) is not Toolset
        if not is_dynamic:
            self._source = Toolset(cast(Iterable[ToolLike], tools))
            self._index = self._indexed(self._source)

    async def at(self, context: PromptContext) -> Toolset:
        """Return the tools of one step: the search, those that are always there, and what was found."""
        source = await self._source.at(context)
        index = self._index
        if index is None or index.tools != tuple(source):
            index = self._index = self._indexed(source)
        return Toolset([index.search, *self._always, *islice(index.found(context), self._maximum)])

    def _indexed(self, tools: Toolset) -> _Index:
        # Report a clash here, not when a search finds both tools.
        by_name([*tools, *self._always])
        return _Index(tuple(tools), self._about, self._results)


class _Index:
    """Tools, and the tool that searches them."""

    def __init__(self, tools: tuple[Tool, ...], about: str, results: int) -> None:
        self.tools = tools
        self._names = {tool.name: tool for tool in tools}
        self._bm25 = BM25([_text(tool) for tool in tools], tokenize=_terms)
        self._results = results
        among = f"{len(tools):,}"
        if about:
            among += f": {about}"
        self.search = Tool(
            self._search,
            name=SEARCH_TOOL,
            description=f"Find tools by what they do, among {among}. Those it finds can be called next.",
        )
        by_name([*tools, self.search])

    async def _search(
        self, query: Annotated[str, "What the tool should do, in a few words, or its name."]
    ) -> dict[str, Any]:
        scores = self._bm25.scores(query)
        ranked = sorted(range(len(scores)), key=lambda position: -scores[position])
        found = [self.tools[position] for position in ranked[: self._results] if scores[position] > 0]
        exact = self._names.get(query.strip())
        # A name that is asked for exactly is found, whatever its words score.
        if exact is not None and exact not in found:
            found = [exact, *found[: self._results - 1]]
        if found:
            return {"tools": [{"name": tool.name, "description": _first_sentence(tool.description)} for tool in found]}
        return {"tools": [], "note": f"nothing has these words{nearest(query, self._names)}: describe it in others"}

    def found(self, context: PromptContext) -> Iterator[Tool]:
        """Yield what searches found, the latest first, each once."""
        seen: set[str] = set()
        latest = chain(reversed(context.intermediate), reversed(context.conversation))
        for message in islice(latest, _MAX_MESSAGES):
            for name in _names_in(message):
                if name in self._names and name not in seen:
                    seen.add(name)
                    yield self._names[name]


def _names_in(message: Message) -> list[str]:
    """Return the names of the tools that a message says were found."""
    if message.role != "tool" or message.name != SEARCH_TOOL:
        return []
    try:
        return [tool["name"] for tool in json.loads(message.text)["tools"]]
    except (ValueError, TypeError, KeyError):
        # The search failed, so its message is not a list of tools.
        return []


def _text(tool: Tool) -> str:
    """Return what a tool is found by: its name counts twice."""
    parts = [tool.name, tool.original_name, tool.description]
    properties = tool.spec.parameters.get("properties")
    # Foreign schemas can have any JSON here.
    if not isinstance(properties, Mapping):
        properties = {}
    for name, item in properties.items():
        parts.append(name)
        if isinstance(item, Mapping):
            parts.append(str(item.get("description", "")))
    return " ".join(parts)


def _terms(text: str) -> list[str]:
    """Return the words of a text; names in camel case and with underscores are several, plurals their singular."""
    terms: list[str] = []
    for word in words(_CAMEL.sub(" ", text).replace("_", " ")):
        if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
            word = word[:-1]
        terms.append(word)
    return terms


def _first_sentence(text: str) -> str:
    first = _SENTENCE.split(text.strip(), 1)[0]
    if len(first) <= MAX_REASON_CHARS:
        return first
    return first[:MAX_REASON_CHARS].rstrip() + "..."
