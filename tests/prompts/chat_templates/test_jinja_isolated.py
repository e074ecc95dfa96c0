"""Isolated chat templates: the same text from a process that is killed at a limit."""

from __future__ import annotations

import copy
import pickle
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agentkit.prompts.chat_templates import ChatTemplateError, JinjaChatTemplate
from agentkit_prompts.templates import isolated_process
from agentkit_prompts.templates.isolated_process import IsolatedProcess
from agentkit_prompts.templates.sandbox.guards import CODECS
from tests.cases import for_cases

CHAT = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}"
    "{% endfor %}{{ strftime_now('%Y') if strftime_now }}{{ extra }}"
)
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi <é> \ud800 漢"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "More"},
]
WORKER = "agentkit_prompts.chat_templates.jinja.isolated_worker"
HI = [{"role": "user", "content": "Hi"}]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are Unix's")


def test_an_isolated_template_renders_as_without_isolation() -> None:
    fields: dict[str, Any] = {"bos_token": "<s>", "now": datetime(2031, 1, 2)}
    here, away = JinjaChatTemplate(CHAT, **fields), JinjaChatTemplate(CHAT, isolated=True, **fields)
    assert away.render(MESSAGES, extra=[1, {"a": None}]) == here.render(MESSAGES, extra=[1, {"a": None}])
    assert away.spans(MESSAGES) == here.spans(MESSAGES)
    assert away.control_tokens == here.control_tokens
    assert away.diagnose() == here.diagnose()


def test_an_invalid_template_is_an_error_at_construction() -> None:
    with pytest.raises(ChatTemplateError) as caught:
        JinjaChatTemplate("\n{{ 1 + }}", isolated=True)
    assert caught.value.line == 2


def test_a_refusal_is_raised_and_the_process_continues() -> None:
    template = JinjaChatTemplate("{{ raise_exception('No.') if messages|length > 1 }}ok", isolated=True, lossy=True)
    with pytest.raises(ChatTemplateError) as caught:
        template.render(MESSAGES)
    assert caught.value.refusal == "No."
    process = template._process._process
    assert template.render(HI) == "ok"
    assert template._process._process is process


def test_exceeding_the_memory_is_an_error_and_the_next_rendering_works() -> None:
    template = JinjaChatTemplate(
        "{{ ('a' * (10**10 if messages|length > 1 else 1))|length }}", isolated=True, lossy=True, limits=None
    )
    with pytest.raises(ChatTemplateError):
        template.render(MESSAGES)
    assert template.render(HI) == "1"


def test_a_crash_of_the_process_is_an_error_and_another_process_starts() -> None:
    deep = (
        "{% set ns = namespace(x=(1,)) %}{% for i in range(2) %}{% for j in range(99999) %}{% set ns.x = (ns.x,) %}"
        "{% endfor %}{% endfor %}{{ {ns.x: 1}|length }}"
    )
    template = JinjaChatTemplate(
        "{% if messages|length > 1 %}" + deep + "{% endif %}ok", isolated=True, lossy=True, limits=None
    )
    # Python 3.14 and later checks the stack while it hashes such a value: the process continues.
    with pytest.raises(ChatTemplateError):
        template.render(MESSAGES)
    assert template.render(HI) == "ok"


@pytest.mark.long
def test_an_endless_rendering_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    template = JinjaChatTemplate(
        "{% if messages|length > 1 %}" + endless + "{% endif %}ok", isolated=True, lossy=True, limits=None
    )
    with monkeypatch.context() as hurried:
        hurried.setattr(isolated_process, "_MAX_SECONDS", 0.5)
        with pytest.raises(ChatTemplateError):
            template.render(MESSAGES)
    assert template.render(HI) == "ok"


def test_the_process_has_no_keys_and_ends_with_its_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_API_KEY", "sk-1")
    template = JinjaChatTemplate("{{ messages[0].content }}", isolated=True)
    process = template._process._process
    assert process is not None
    seen = Path(f"/proc/{process.pid}/environ")
    if seen.exists():
        assert b"SECRET_API_KEY" not in seen.read_bytes()
    template._process.close()
    assert process.returncode == -signal.SIGKILL
    assert template.render(HI) == "Hi"


def test_a_template_with_another_time_shares_the_process() -> None:
    template = JinjaChatTemplate("{{ strftime_now('%Y') }}{{ messages[0].content }}", isolated=True)
    first, second = template.with_now(datetime(2031, 1, 2)), template.with_now(datetime(2032, 1, 2))
    assert (first.render(HI), second.render(HI)) == ("2031Hi", "2032Hi")
    assert first._process is second._process is template._process


def test_a_value_that_is_not_json_is_refused_and_a_process_can_be_copied() -> None:
    with pytest.raises(ChatTemplateError):
        IsolatedProcess(WORKER, ChatTemplateError).ask("render", str, given=object())
    assert isinstance(copy.deepcopy(IsolatedProcess(WORKER, ChatTemplateError)), IsolatedProcess)
    assert isinstance(pickle.loads(pickle.dumps(IsolatedProcess(WORKER, ChatTemplateError))), IsolatedProcess)


@for_cases("isolated", [False, True])
def test_a_used_template_can_be_copied_and_pickled(isolated: bool) -> None:
    used = JinjaChatTemplate(CHAT, bos_token="<s>", now=datetime(2031, 1, 2), isolated=isolated)
    made = [used.render(HI), used.control_tokens, used.with_now(datetime(2032, 1, 2)).render(HI)]
    for one in (copy.copy(used), copy.deepcopy(used), pickle.loads(pickle.dumps(used))):
        assert one == used
        assert [one.render(HI), one.control_tokens, one.with_now(datetime(2032, 1, 2)).render(HI)] == made


def test_a_filter_that_imports_a_module_works_in_the_process() -> None:
    codecs = [f"'a'.encode('{name}')" for name in sorted(CODECS)]
    written = ["'a&lt;b'|striptags", "[1, 'a']|pprint", "'a'|safe|striptags", *codecs]
    text = "".join([f"{{{{ {one} }}}}\n" for one in written])
    here, away = (JinjaChatTemplate(text, lossy=True, isolated=one) for one in (False, True))
    assert away.render(HI) == here.render(HI)
