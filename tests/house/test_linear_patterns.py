"""Every compiled pattern of the packages takes linear time for texts that repeat parts of the pattern."""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from agentkit.models.completion.call_space import space_pattern
from agentkit.prompts.chat_templates import CHAT_TEMPLATES
from agentkit_prompts.chat_templates.guard.control_tokens import tokens_of
from agentkit_prompts.chat_templates.guard.token_marks import TokenMarks, Unmarking
from tests.house.packages import MODULES, module_name, parsed

_CATEGORIES = {"DIGIT": "1", "SPACE": " \n", "WORD": "aA_1"}
_CALL_READERS = "agentkit_prompts.chat_templates.tool_calls."
"""Readers of tool calls, which match all their patterns at a given place."""
_LENGTH = 600
_MIN_SECONDS = 0.005
"""Seconds below which the noise of the clock is larger than the growth."""


@dataclass(frozen=True)
class Case:
    """A pattern as the packages use it."""

    pattern: re.Pattern[Any]
    place: str
    is_anchored: bool = False
    """True if the pattern is only matched at a given place of a text, and never searched."""

    def seconds(self, start: str, pump: str, length: int) -> float:
        """Return the CPU seconds to read a text: `start`, then `pump` until it has this length, then no match."""
        text: Any = start + pump * (length // len(pump)) + "\x01"
        if isinstance(self.pattern.pattern, bytes):
            text = text.encode("latin-1", "replace")
        before = time.process_time()
        if self.is_anchored:
            self.pattern.match(text)
            self.pattern.fullmatch(text)
        else:
            for _ in self.pattern.finditer(text):
                pass
        return time.process_time() - before

    def grows_too_fast(self, start: str, pump: str) -> bool:
        """True if a text of four times the length costs more than eight times the time, in three measurements."""
        if self.seconds(start, pump, 4 * _LENGTH) < _MIN_SECONDS:
            return False
        return all(
            self.seconds(start, pump, 4 * _LENGTH) > max(_MIN_SECONDS, 8 * self.seconds(start, pump, _LENGTH))
            for _ in range(3)
        )

    def attacks(self) -> Iterator[tuple[str, str]]:
        """Yield the start and the repeated text of hostile texts."""
        characters, words = {" "}, set[str]()
        collect(parser.parse(self.pattern.pattern, self.pattern.flags), characters, words)
        singles = sorted(characters)[:12]
        longest = sorted(filter(None, words), key=len, reverse=True)[:4]
        # Separators such as `://` are the shortest words.
        shortest = sorted(
            {word for word in words if len(word) > 1}.difference(longest), key=lambda word: (len(word), word)
        )
        pairs = ["".join(pair) for pair in permutations(singles[:6], 2)]
        for start in ("", *longest):
            for pump in (*singles, *longest, *shortest[:8], *(pairs if not start else ())):
                yield start, pump
        for start in sorted(word for word in words if len(word) == 1 and word not in longest)[:6]:
            for pump in singles:
                yield start, pump


def collect(nodes: Any, characters: set[str], words: set[str]) -> None:
    """Collect the characters and the literal words that a parsed pattern matches."""
    word = ""
    for code, value in nodes:
        if code is codes.LITERAL:
            word += chr(value)
            characters.add(chr(value))
            continue
        words.add(word)
        word = ""
        if code is codes.IN:
            for kind, item in value:
                if kind is codes.LITERAL:
                    characters.add(chr(item))
                elif kind is codes.RANGE:
                    characters.add(chr(item[0]))
                elif kind is codes.CATEGORY:
                    characters.update(_CATEGORIES.get(str(item).rsplit("_", 1)[-1], "a "))
        elif code in (codes.ANY, codes.NOT_LITERAL):
            characters.add("a")
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            collect(value[2], characters, words)
        elif code is codes.SUBPATTERN:
            collect(value[3], characters, words)
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            collect(value[1], characters, words)
        elif code is codes.ATOMIC_GROUP:
            collect(value, characters, words)
        elif code is codes.BRANCH:
            for branch in value[1]:
                collect(branch, characters, words)
    words.add(word)


def cases() -> Iterator[Case]:
    """Yield the patterns of the modules, also in their lists and tables."""
    for path in MODULES:
        name, source = module_name(path), path.read_text("utf-8")
        if path.stem.startswith("__"):
            continue  # a program runs when it is imported
        for attribute, value in vars(importlib.import_module(name)).items():
            # A pattern that another module defines is a case of the other module.
            if re.search(rf"^{attribute}\b", source, re.M):
                for item in items(value):
                    # Without a repetition that has no maximum, the time cannot grow too fast.
                    if isinstance(item, re.Pattern) and re.search(r"[*+]|,\}", str(item.pattern)):
                        anchored = name.startswith(_CALL_READERS) or is_anchored(attribute, source)
                        yield Case(item, f"{name}.{attribute}", anchored)


def items(value: Any) -> Iterator[Any]:
    """Yield a value, and the items of a table, a list and the tuples in them."""
    yield value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from item if isinstance(item, tuple) else (item,)


def is_anchored(attribute: str, source: str) -> bool:
    """True if a module uses a pattern only in calls that match at a given place."""
    uses = re.findall(rf"(?<![\w.]){attribute}\b(?!:| =)", source)
    anchored = re.findall(rf"(?<![\w.]){attribute}(?:\[[^]]+\]+)?\.(?:match|fullmatch)\b", source)
    return 0 < len(uses) == len(anchored)


def values(module: str, name: str) -> Any:
    """Return the value of a name of a module."""
    return vars(importlib.import_module(module))[name]


def of_tokens(choose: Callable[[Any], Iterable[re.Pattern[str]]]) -> list[Case]:
    """Return the patterns of the control tokens of two models: markers of words, and tokens in brackets."""
    models = [tokens_of(CHAT_TEMPLATES.get(name)()) for name in ("vicuna", "qwen2d5")]
    return [Case(pattern, "control tokens") for tokens in models for pattern in choose(tokens)]


def searched(*sources: str) -> list[Case]:
    return [Case(re.compile(source), source) for source in sources]


def matched(*sources: str) -> list[Case]:
    return [Case(re.compile(source), source, is_anchored=True) for source in sources]


def heads() -> list[Case]:
    """Return the patterns of the heads of items."""
    forms: dict[Any, None] = {}
    for module in ("agentkit_prompts.tree.leaves", "agentkit_prompts.tree.examples"):
        forms |= {getattr(value, "_heads", None): None for value in vars(importlib.import_module(module)).values()}
    lines = "agentkit_prompts.templates.line_heads"
    forms[values(lines, "MESSAGE")] = None
    return [case for form in forms if form is not None for case in matched(form._pattern)]


def tags() -> list[Case]:
    """Return the patterns of arguments between tags."""
    named, text = (values(f"{_CALL_READERS}tagged_calls", name) for name in ("_NAMED", "_STRING"))
    pair = r"<key>(?P<key>[^<>]*+)</key>\s*+<value>"
    parameter = rf"<atem:parameter\s++name={named}{text}\s*+>"
    return [
        *searched(*(f"(?:{opening})|(?P<closing></value>)" for opening in (pair, parameter))),
        *matched(*(rf"\s*+(?:{opening}|</call>)" for opening in (pair, parameter))),
        *matched(pair, parameter, rf"\s*+<atem:invoke\s++name={named}\s*+>"),
    ]


def docstrings() -> list[Case]:
    """Return the patterns of docstrings."""
    module = "agentkit_tools.schemas.docstring"
    styles = [source for style in values(module, "_STYLES") for source in style]
    asides = [values(module, name) for name in ("_OPENS_ASIDE", "_SECTION", "_FOOTNOTE")]
    return searched(*styles, *asides, *values(module, "_ENDS_ASIDE").values())


RUN_TIME: dict[str, Callable[[], list[Case]] | str] = {
    "agentkit.cli.app.get_command": "reads source files of the package",
    "agentkit.evals.run_scores.matches": "the pattern is an argument of the program",
    "agentkit.inspector.payload_view.payload_view": "literal text",
    "agentkit.models.cache_minimums.cache_minimum": lambda: matched(
        *(row[1] for row in values("agentkit.models.cache_minimums", "_ROWS"))
    ),
    "agentkit.models.completion.call_space.space_pattern": "see the next test",
    "agentkit.models.completion.text_tool_calls.__init__": "literal text",
    "agentkit.models.offline.offline_tool_calls._mentions": lambda: searched(r"(?<![\w.-])look(?![\w-])"),
    "agentkit.models.offline.offline_tool_calls._arguments": lambda: searched(
        r"(?<![\w.-])[\"'`]?look[\"'`]?\s*+(?:=|:|\bis\b)\s*+"
    ),
    "agentkit.models.openai.openai_models.openai_rules": lambda: matched(
        *(row[0] for row in values("agentkit.models.openai.openai_models", "_ROWS"))
    ),
    "agentkit_memory.ingest.readers.text_and_markdown._read_html_heading": lambda: searched(r"(?i)</h1\s*>"),
    "agentkit_memory.recall.question._without_names": lambda: searched(r"(?i)\b(?:ada\ lo|ada)(?:['’]s)?\b"),
    "agentkit_prompts.chat_templates.builtin.builtin.builtin": lambda: [
        Case(pattern, name)
        for name, pattern in values("agentkit_prompts.chat_templates.builtin.builtin", "builtin")()[1].items()
    ],
    "agentkit_prompts.chat_templates.generation._between": "two characters",
    "agentkit_prompts.chat_templates.guard.control_tokens.__init__": lambda: of_tokens(lambda it: [it._anywhere]),
    "agentkit_prompts.chat_templates.guard.control_tokens._everywhere": lambda: of_tokens(lambda it: [it._everywhere]),
    "agentkit_prompts.chat_templates.guard.control_tokens._at_line_start": lambda: of_tokens(
        lambda it: [it._at_line_start]
    ),
    "agentkit_prompts.chat_templates.guard.token_marks.__init__": lambda: of_tokens(
        lambda it: [
            *(TokenMarks(it, is_repeated=is_repeated)._pattern for is_repeated in (False, True)),
            *(pattern for is_json in (False, True) for pattern in _unmarking(list(it), is_json=is_json)),
        ]
    ),
    "agentkit_prompts.chat_templates.registry._fit": "literal text",
    f"{_CALL_READERS}cut_calls._matched_ends": "literal text",
    f"{_CALL_READERS}formats.formats_in_texts": lambda: searched(
        *(sign for _, sign in values(f"{_CALL_READERS}formats", "_SIGNS"))
    ),
    f"{_CALL_READERS}rendered_call.is_read_in": lambda: searched(
        *(form.format(name="look") for form in values(f"{_CALL_READERS}rendered_call", "_WHOLE_REPLY").values())
    ),
    f"{_CALL_READERS}reply_text.find": "literal text",
    f"{_CALL_READERS}tagged_calls.pair_call": tags,
    f"{_CALL_READERS}tagged_calls.invoke_calls": tags,
    f"{_CALL_READERS}tagged_calls._matched_tags": tags,
    "agentkit_prompts.evaluation.columns._pattern": "literal text",
    "agentkit_prompts.schemas.pattern_size.is_common_pattern": "the pattern is compiled and never matched",
    "agentkit_prompts.schemas.property_names.wire_property": lambda: matched(
        *values("agentkit_prompts.schemas.property_names", "_PATTERNS")
    ),
    "agentkit_prompts.schemas.property_names.with_wire_names": "the patterns of `wire_property`",
    "agentkit_prompts.templates.line_heads._match": heads,
    "agentkit_prompts.tree.fence.without_forged_nonce": "literal text",
    "agentkit_tools.schemas.callables._own_docstring": lambda: matched(r"(?s)look\(.*\)(?: -> None)?"),
    "agentkit_tools.schemas.docstring._descriptions": docstrings,
    "agentkit_tools.schemas.docstring._parse": "see `_descriptions`",
    "agentkit_tools.schemas.docstring.read_docstring": "see `_descriptions`",
    "agentkit_tools.schemas.docstring._prose": "see `_descriptions`",
    "agentkit_tools.schemas.docstring._without_asides": "see `_descriptions`",
}
"""Functions that compile a pattern of variables: examples of their patterns, or the reason why none is slow."""


def _unmarking(tokens: list[str], *, is_json: bool) -> Iterator[re.Pattern[str]]:
    unmarking = Unmarking(tokens, is_json=is_json)
    yield unmarking._whole
    yield unmarking._start


def run_time_patterns() -> Iterator[tuple[str, Case | None]]:
    """Yield the functions that match or compile patterns, each with its constant pattern; None for variables."""
    for path in MODULES:
        name = module_name(path)
        if not re.search(r"\bre\.[a-z]+\(", path.read_text("utf-8")):
            continue
        for function in ast.walk(parsed(path)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for call in filter(_is_pattern_call, ast.walk(function)):
                yield f"{name}.{function.name}", _constant_case(name, call)


def _is_pattern_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr not in ("escape", "error")
    )


def _constant_case(name: str, call: Any) -> Case | None:
    """Return the pattern of a call that only constants of its module determine."""
    source, *flags = [
        ast.unparse(node) for node in (call.args[0], *call.args[1:], *(key.value for key in call.keywords))
    ]
    flags = [flag for flag in flags if re.fullmatch(r"re\.[A-Z]+(?: \| re\.[A-Z]+)*", flag)]
    try:
        pattern = eval(
            f"re.compile({source}, {'|'.join(flags) or 0})", {**vars(importlib.import_module(name)), "re": re}
        )
    except (NameError, AttributeError):
        return None
    return Case(pattern, name, call.func.attr in ("match", "fullmatch"))


def test_a_text_that_repeats_parts_of_a_pattern_takes_linear_time() -> None:
    slow = {case.place: attack for case in cases() for attack in case.attacks() if case.grows_too_fast(*attack)}
    assert slow == {}


def test_a_pattern_that_a_function_compiles_takes_linear_time() -> None:
    patterns = list(run_time_patterns())
    variable = {place for place, case in patterns if case is None}
    assert variable == RUN_TIME.keys()
    made = {entry: entry() for entry in RUN_TIME.values() if callable(entry)}
    cases = [case for _, case in patterns if case is not None]
    slow = {
        case.place: attack
        for case in [*cases, *(case for group in made.values() for case in group)]
        for attack in case.attacks()
        if case.grows_too_fast(*attack)
    }
    assert slow == {}


def test_patterns_that_contain_a_text_of_a_model_take_linear_time() -> None:
    for end in ("", " ", "\t \t", "a", "a ", " a", "a b" * 9, "((", "\\"):
        case = Case(space_pattern(end, "<call>"), repr(end))
        pumps = (" ", "\t ", end or "\n", f" {end}", f"{end} ", "<call", f"{end}<")
        assert [pump for start in ("", end) for pump in pumps if case.grows_too_fast(start, pump)] == [], end


@pytest.mark.parametrize(
    ("source", "start", "pump"),
    [
        (r"\w+=", "", "a"),
        (r"answer\s*:?\s*b", "answer", " "),
        (r"first|second|third|fourth|\w:\w|://[^\s?#]*[?#]\S", "", "://"),
    ],
)
def test_the_check_finds_patterns_of_quadratic_time(source: str, start: str, pump: str) -> None:
    case = Case(re.compile(source), "here")
    assert (start, pump) in case.attacks() and case.grows_too_fast(start, pump)
