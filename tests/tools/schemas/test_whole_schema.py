"""Tools whose whole schema is checked, with the extra `jsonschema`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from agentkit import ToolCall
from agentkit.tools import Tool, ToolArgumentError, ToolContext, ToolDefinitionError


async def echo(**arguments: Any) -> Any:
    return arguments


SCHEMA = {
    "properties": {
        "day": {"type": "string", "format": "date"},
        "what": {"not": {"enum": ["nothing"]}},
        "one": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        "names": {"type": "array", "contains": {"const": "a"}},
        "odd": {"type": "object", "patternProperties": {"^x": {"type": "integer"}}},
        "slow": {"type": "string", "pattern": "^(a+)+$"},
    },
    "dependentRequired": {"day": ["what"]},
}
WRONG = {"day": "tomorrow", "what": "nothing", "one": 1, "names": ["b"], "odd": {"x1": "y"}}


async def test_every_keyword_is_checked_and_every_problem_has_its_place() -> None:
    made = Tool.from_json_schema("t", "", SCHEMA, echo, checks_all=True)
    with pytest.raises(ToolArgumentError) as caught:
        made.validate(json.dumps(WRONG))
    assert {problem.path for problem in caught.value.problems} == {"day", "what", "one", "names", "odd.x1"}
    right = {"day": "2026-11-22", "what": "it", "one": 1.5, "names": ["a"], "odd": {"x1": 1, "y": "z"}, "slow": "aa"}
    result = await made.call(ToolCall("c", "t", json.dumps(right)), ToolContext(None))
    assert result.value == right
    result = await made.call(ToolCall("c", "t", '{"day": "2026-11-22"}'), ToolContext(None))
    assert isinstance(result.error, ToolArgumentError)
    assert Tool.from_json_schema("t", "", SCHEMA, echo).validate(json.dumps(WRONG)) == WRONG


def test_patterns_stay_linear() -> None:
    made = Tool.from_json_schema("t", "", SCHEMA, echo, checks_all=True)
    with pytest.raises(ToolArgumentError) as caught:
        made.validate(json.dumps({"slow": "a" * 5_000 + "!"}))
    assert [problem.path for problem in caught.value.problems] == ["slow"]


def test_it_is_not_for_schemas_of_others_and_says_what_to_install() -> None:
    with pytest.raises(ToolDefinitionError):
        Tool.from_json_schema("t", "", SCHEMA, echo, checks_all=True, trust="untrusted")
    code = (
        "import sys; sys.modules['jsonschema'] = None\n"
        "from agentkit.tools import Tool\n"
        "try:\n    Tool.from_json_schema('t', '', {}, print, checks_all=True)\n"
        "except Exception as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'agentkit-prompt-tree[jsonschema]'" in done.stdout
