"""Isolated templates: the same text from a process that is killed at a limit."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from agentkit.prompts import Document, Image, Message, PromptContext, Template, TemplateError, TextPrompt, WrapPrompt
from agentkit_prompts.templates.isolated_process import IsolatedProcess
from agentkit_prompts.templates.isolated_program import isolated_program, start_process
from tests.waiting import LONG

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are Unix's")

SOURCE = (
    "{{ user_input }}: {% for d in documents %}[{{ loop.index }}] {{ d.title }} {{ d.text|upper }}{% endfor %}"
    "{% for m in conversation %}{{ m.role }}={{ m }}={{ m.text }}{% endfor %}{{ additional_kwargs.tone }}"
)
CONTEXT = PromptContext(
    user_input={"input": "Why <|media:image:x|>?", "additional_kwargs": {"tone": "dry"}},
    documents=[Document("one", title="T1", trust="trusted"), Document("two", title="T2")],
    conversation=[Message("user", "Hi é 漢")],
)


def test_an_isolated_template_renders_as_without_isolation() -> None:
    here, away = (TextPrompt(template=Template(SOURCE, isolated=isolated)) for isolated in (False, True))
    one, two = here.render(CONTEXT), away.render(CONTEXT)
    assert two.text == one.text
    assert list(two.segments("p")) == list(one.segments("p"))
    assert away.template.names == here.template.names
    assert away.template.kwargs_schema == here.template.kwargs_schema


def test_line_breaks_that_exceed_the_limit_are_accepted_with_and_without_isolation() -> None:
    markers = "<|media:" * 500_000
    here, away = (Template("{{ x }}", isolated=isolated).render({"x": markers}) for isolated in (False, True))
    assert away == here == "<\u200b|media:" * 500_000


def test_locales_share_one_process() -> None:
    template = Template({"en": "Hello {{ name }}", "de": "Hallo {{ name }}"}, isolated=True)
    assert [template.render({"name": "A"}, locale) for locale in ("en", "de-CH", "fr")] == [
        "Hello A",
        "Hallo A",
        "Hello A",
    ]


def test_errors_have_their_places() -> None:
    with pytest.raises(TemplateError) as found:
        Template("\n{{ 1 + }}", isolated=True, file="x.j2", first_line=7)
    assert (found.value.file, found.value.line) == ("x.j2", 8)
    with pytest.raises(TemplateError) as failed:
        Template("{{ name }}\n{{ nobody }}", isolated=True).render({"name": "A"})
    assert (failed.value.line, failed.value.variable) == (2, "nobody")


def test_exceeding_a_limit_is_an_error_and_the_next_rendering_works() -> None:
    template = Template(
        "{% if go %}{% for i in range(10**6) %}{% for j in range(10**6) %}{% endfor %}{% endfor %}{% endif %}ok",
        isolated=True,
    )
    with pytest.raises(TemplateError):
        template.render({"go": True})
    assert template.render({"go": False}) == "ok"


def test_media_and_other_prompts_are_refused_with_a_remedy() -> None:
    picture = PromptContext(user_input=[Image(b"\x89PNG\r\n\x1a\n")])
    with pytest.raises(TemplateError):
        TextPrompt(template=Template("{{ user_input }}", isolated=True)).render(picture)
    wrapped = WrapPrompt([TextPrompt("a")], Template("<{{ wrapped_str }}>", isolated=True))
    with pytest.raises(TemplateError):
        wrapped.render(PromptContext(user_input="q"))


def test_the_process_has_no_keys_and_a_copy_of_a_template_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_API_KEY", "sk-1")
    before = children()
    template = Template("{{ name }}", isolated=True)
    for process in children() - before:
        assert b"SECRET_API_KEY" not in Path(f"/proc/{process}/environ").read_bytes()
    copies: list[Any] = [copy.deepcopy(template), pickle.loads(pickle.dumps(template))]
    assert [one.render({"name": "A"}) for one in copies] == ["A", "A"]


def test_an_invalid_answer_of_the_process_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lying_worker.py").write_text(
        "import pathlib, sys\n"
        "for line in sys.stdin:\n"
        "    sys.stdout.buffer.write(pathlib.Path(__file__).with_name('answer').read_bytes() + b'\\n')\n"
        "    sys.stdout.flush()\n"
    )
    compiled = '{"result": {"literal": null, "names": {"x": 1}, "required": [], "kwargs": {}, "sites": SITES}}'
    process = IsolatedProcess("lying_worker", TemplateError)
    for answer in (
        *("[" * 100_000, "9" * 100_000, "[1]", "null", '"x"', "", "{}", '{"error": 5}', '{"error": "x", "place": [1]}'),
        *('{"error": "x", "place": {"nope": 1}}', '{"result": 5}', '{"result": NaN}', "\xff", compiled),
        *(compiled.replace("SITES", sites) for sites in ("5", "[[1]]", '[["x", 1, 2]]', "[[1, 2, 3]]")),
        *(compiled.replace("SITES", sites) for sites in ("[[1e400, 1, []]]", '[]}}\n{"result": 1')),
    ):
        (tmp_path / "answer").write_bytes(answer.encode("latin-1"))
        with pytest.raises(TemplateError):
            isolated_program("{{ x }}", process, syntax="jinja", file=None, first_line=1)
    (tmp_path / "answer").write_text(compiled.replace("SITES", '[[1, "x", ["x"]]]'))
    program = isolated_program("{{ x }}", process, syntax="jinja", file=None, first_line=1)
    wrong = ("5", '[["x"]]', '[["x", "a", []]]', '[["x", 7, []]]', "[null]", '[["x", 0, [Infinity]]]', "[[5, 0, []]]")
    for pieces in wrong:
        (tmp_path / "answer").write_text(f'{{"result": {pieces}}}')
        with pytest.raises(TemplateError):
            program.trace({"x": "1"})
    process.close()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no alarm")
def test_a_process_ends_itself_after_its_time_limit() -> None:
    code = (
        "import time\nfrom agentkit_prompts.templates import request_loop\n"
        "request_loop._MAX_SECONDS = {}\nrequest_loop.serve(lambda asked: time.sleep(asked), str)"
    )
    patient, hasty = [[sys.executable, "-c", code.format(seconds)] for seconds in (LONG, 0.2)]
    assert subprocess.run(patient, input="0\n0\n", capture_output=True, text=True).stdout.count("result") == 2
    assert subprocess.run(hasty, input="600\n", capture_output=True, text=True).returncode == -signal.SIGALRM


@pytest.mark.parametrize("act", ["open('/etc/hostname')", "socket.socket()", "os.pipe()", "os.listdir('/')"])
def test_code_that_escapes_from_a_template_can_open_no_file(act: str) -> None:
    code = f"import os, socket\nfrom agentkit_prompts.templates.request_loop import serve\nserve(lambda _: {act}, str)"
    done = subprocess.run([sys.executable, "-c", code], input="0\n", capture_output=True, text=True)
    assert "Too many open files" in done.stderr


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_process_forked_during_a_rendering_starts_its_own_template_process() -> None:
    template = Template("{% for i in range(n) %}{% endfor %}{{ n }}", isolated=True)
    is_over = Event()

    def render_until_end() -> None:
        while not is_over.is_set():
            assert template.render({"n": 20_000}) == "20000"

    with ThreadPoolExecutor(1) as threads:
        busy = threads.submit(render_until_end)
        ends = []
        for _ in range(3):
            forked = os.fork()
            if not forked:
                signal.alarm(60)
                os._exit([template.render({"n": n}) for n in range(3)] != ["0", "1", "2"])
            ends.append(os.waitpid(forked, 0)[1])
        is_over.set()
        busy.result()
    assert ends == [0, 0, 0]
    assert template.render({"n": 1}) == "1"


def test_a_process_that_cannot_be_started_is_an_error() -> None:
    resource = pytest.importorskip("resource")
    process = start_process()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(TemplateError):
            isolated_program("{{ x }}", process, syntax="jinja", file=None, first_line=1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert isolated_program("{{ x }}", process, syntax="jinja", file=None, first_line=1).names == {"x": 1}


def children() -> set[str]:
    """Return the child processes, if the system lists them."""
    listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    return set(listed.read_text().split()) if listed.exists() else set()
