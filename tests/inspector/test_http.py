"""The routes over real HTTP: the access of callers, refused requests, and secrets that no answer contains."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from typer.testing import CliRunner

from agentkit import (
    Agent,
    Journal,
    Layers,
    Message,
    ModelError,
    PromptContext,
    ScriptedModel,
    Session,
    UserInput,
)
from agentkit.cli.app import app
from agentkit.durable import DatabaseUnavailable
from agentkit.inspector import InspectorSource, LocalSource, inspector_routes, page_files, routes
from agentkit.inspector.local_page import local_app
from agentkit.memory import IndexBroken, Memory, Scope, StoreUnavailable
from agentkit.prompts import TextPrompt
from agentkit.runs.run_record import RunsWanted
from tests.cases import collected
from tests.inspector.conftest import Serve, serving
from tests.inspector.shop import finished, reply, shop, support, talk, waiting
from tests.waiting import LONG

get = partial(httpx2.get, timeout=LONG, verify=False)  # certificates, which no test uses here, take long to read
PAGE = Path(inspector_routes.__file__).parent / "page"


@pytest.fixture
def url(serve: Serve) -> str:
    return serve(shop())


def post(url: str, path: str, **body: Any) -> httpx2.Response:
    return httpx2.post(f"{url}api/{path}", json=body, timeout=LONG, verify=False)


def test_the_page_is_sent_in_under_60_kilobytes_and_needs_no_network() -> None:
    assert sum(len(file.packed) for file in page_files.page_files().values()) < 60_000
    files = list(PAGE.iterdir())
    for path in files:
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text and "https://" not in text and "//cdn" not in text, path.name
        if path.suffix == ".js":
            for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "srcdoc"):
                assert word not in text, f"{path.name}: {word}"
    html = (PAGE / "index.html").read_text("utf-8")
    assert "<style" not in html and "style=" not in html and "<script>" not in html and " on" + "click" not in html


def test_every_answer_has_a_strict_policy(url: str) -> None:
    for path in ("", "main.js", "inspector.css", "mark.svg", "api/overview", "api/run?id=nope", "nope.js"):
        answer = get(f"{url}{path}")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and "require-trusted-types-for 'script'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert get(f"{url}api/overview").headers["cache-control"] == "no-store"
    assert get(url.rstrip("/")).headers["location"] == "/inspector/"


def test_answers_are_compressed_on_request_and_lists_are_sent_in_parts(serve: Serve) -> None:
    source = shop(1000)
    for number in range(120):
        source.add(Journal("support", f"r{number}", PromptContext(user_input=UserInput("Hi"))))
    url = serve(source)
    for path in ("main.js", "api/overview", "api/turns?name=ada&start=0"):
        packed, plain = [get(f"{url}{path}", headers={"accept-encoding": how}) for how in ("gzip", "identity")]
        assert packed.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
        assert packed.content == plain.content and packed.num_bytes_downloaded * 2 < len(plain.content)
    first, whole = [get(f"{url}api/overview{more}").json() for more in ("", "?all=yes")]
    assert len(first["runs"]) == 50 and first["sessions"] == whole["sessions"] == ["ada"]
    ids, older = [run["id"] for run in first["runs"]], first["older"]
    while older is not None:
        part = get(f"{url}api/runs?before={older}").json()
        ids, older = ids + [run["id"] for run in part["runs"]], part["older"]
    assert (
        ids == ["run-waiting", "run-failed", "run-finished", *[f"r{at}" for at in range(120)]][::-1][:120] + ids[120:]
    )
    assert len(set(ids)) == 123
    turns = [get(f"{url}api/turns?name=ada&start={start}").json()["turns"] for start in (0, 950, 5000)]
    assert [len(one) for one in turns] == [50, 50, 0] and turns[1][0]["turn"] == 950
    around = get(f"{url}api/session?name=ada&turn=499").json()["turns"]
    assert [one["turn"] for one in around] == [*range(474, 524)]
    assert get(f"{url}api/session?name=ada&turn=x").status_code == 400
    of_run, last, plain, chosen = [
        post(url, "compose", base={"session": "ada", **base}, journal=True).json()
        for base in ({"turn": 1000}, {"turn": "last"}, {"turn": 999}, {"turn": 1000, "agent": "support"})
    ]
    assert of_run["run"]["id"] == "run-finished" and of_run == last  # its own prompt, and not the present prompt
    assert (plain["run"], chosen["run"], plain["agent"]) == (None, None, "support")
    for wrong in ("start=-1&name=ada", "start=&name=ada", "start=1e9&name=ada", "start=1"):
        assert get(f"{url}api/turns?{wrong}").status_code == 400


def test_runs_are_filtered_and_sorted_by_the_fields_of_their_rows(url: str) -> None:
    for query, wanted in (
        ("state=failed", ["run-failed"]),
        ("error=Error", ["run-failed"]),
        ("error=Other", []),
        ("agent=support&text=ORDER 1042", ["run-waiting"]),
        ("text=machine ada", ["run-finished"]),
        ("text=run-finished", ["run-finished"]),
        ("text=%25", []),
        ("user=nobody", []),
        ("order=tokens", ["run-finished", "run-waiting", "run-failed"]),
        ("order=cost&before=run-finished", ["run-waiting", "run-failed"]),
    ):
        answer = get(f"{url}api/runs?{query}").json()
        assert ([run["id"] for run in answer["runs"]], answer["older"]) == (wanted, None), query
    row = get(f"{url}api/runs?text=espresso").json()["runs"][0]
    assert row["usage"]["money"] == pytest.approx(0.0047, abs=1e-4) and row["seconds"] >= 0 and row["started_at"] > 1e9
    for query in ("state=lost", "order=best", "color=red", "text=" + "x" * 4_001):
        assert get(f"{url}api/runs?{query}").status_code == 422, query


def test_the_modules_are_one_script_and_an_address_with_a_hash_is_cached_forever(url: str) -> None:
    page = get(url)
    assert page.headers["cache-control"] == "no-cache"
    found = [f"{name}?{version}" for name, version in re.findall(r'="([\w.]+)\?([0-9a-f]+)"', page.text)]
    assert {one.partition("?")[0] for one in found} == {"mark.svg", "inspector.css", "main.js"}
    for address in found:
        kept = [get(f"{url}{one}").headers["cache-control"] for one in (address, address + "0", address[:-17])]
        assert kept == ["max-age=31536000, immutable", "no-cache", "no-cache"]
    script = get(f"{url}main.js").text
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    assert all(script.count(f"const ${path.stem} = ") == 1 for path in PAGE.glob("*.js"))
    assert get(f"{url}side.js").status_code == 404


@pytest.mark.parametrize("line", ['import * as a from "./dom.js";', "export default 1;", 'await import("./dom.js");'])
def test_a_module_that_cannot_be_joined_is_named(line: str) -> None:
    parts = {"main.js": 'import { a as b } from "./dom.js";\nb();\n', "dom.js": f"export const a = 1;\n{line}\n"}
    with pytest.raises(ValueError):
        page_files._joined(parts, "main.js")


@pytest.mark.parametrize(
    "path", ["../source.py", "%2e%2e%2fsource.py", "..%5csource.py", "page/main.js", "main.js%00", "__init__.py", "a/b"]
)
def test_only_the_files_of_the_page_are_served(url: str, path: str) -> None:
    assert get(f"{url}{path}").status_code == 404


@pytest.mark.parametrize(
    ("content", "kind", "status", "problem"),
    [
        (b"{", "application/json", 400, "not JSON"),
        (b"\xff\xfe", "application/json", 400, "not JSON"),
        (b"[" * 100_000, "application/json", 400, "not JSON"),
        (b"[]", "application/json", 422, "the request: "),
        (b"{}", "text/plain", 415, "application/json"),
        (b"{}", "", 415, "application/json"),
        (b" " * 4_000_001, "application/json", 413, "send less"),
        (b'{"base": {"run": "x"}, "bugdet": 3, "layers": 4}', "application/json", 422, "the request: "),
    ],
)
def test_an_invalid_request_is_refused(url: str, content: bytes, kind: str, status: int, problem: str) -> None:
    answer = httpx2.post(
        f"{url}api/compose", timeout=LONG, content=content, headers={"content-type": kind} if kind else {}
    )
    assert answer.status_code == status and problem in answer.json()["error"]["message"]
    if b"bugdet" in content:
        problems = {one["where"]: one["what"] for one in answer.json()["error"]["problems"]}
        assert problems["layers"] == "expected an object, got 4" and "did you mean 'budget'" in problems["bugdet"]


WRONG: list[Any] = [
    ("compose", {"base": {"run": "x" * 5_000}}, 422, "request"),
    ("compose", {"base": {"run": "../../etc/passwd"}}, 404, "unknown run"),
    ("compose", {"base": {"run": "run-finished", "step": 99}}, 404, "unknown step 99"),
    ("compose", {"base": {"run": "run-finished"}, "budget": 3}, 422, "the budget is 3"),
    ("compose", {"base": {"run": "run-finished"}, "budget": -1}, 422, "leaves no tokens"),
    ("compose", {"base": {"run": "run-finished"}, "budget": 10**30}, 422, "whole numbers"),
    ("compose", {"base": {"run": "run-finished"}, "budget": "many"}, 422, "request"),
    ("compose", {"base": {"run": "run-finished"}, "budget": True}, 422, "request"),
    ("compose", {"base": {"run": "run-finished"}, "layers": {"system[0]": "{% for"}}, 422, "system[0]"),
    ("compose", {"base": {"run": "run-finished"}, "layers": {"system[0]": "{{ x.__class__ }}"}}, 422, "system[0]"),
    (
        "compose",
        {
            "base": {"run": "run-finished"},
            "layers": {"system[0]": "{% for a in range(9999999) %}{{ a }}{% endfor %}"},
        },
        422,
        "system[0]",
    ),
    ("compose", {"base": {"run": "run-finished"}, "layers": {"nowhere": "x"}}, 422, "no prompt has this path"),
    ("compose", {"base": {"run": "run-finished"}, "against": {"run": "nope"}}, 404, "unknown run"),
    ("compose", {"base": {"session": "ada", "turn": 999}}, 422, "unknown turn 999"),
    ("compose", {"base": {"session": "nobody", "turn": 0}}, 404, "unknown session 'nobody'"),
    ("compose", {"base": {"agent": "nobody"}}, 404, "unknown agent 'nobody'"),
    ("compose", {"base": {"agent": "support"}}, 422, "customer"),
    (
        "payload",
        {"base": {"run": "run-finished"}, "target": "text", "chat_template": "/etc/passwd"},
        422,
        "unknown",
    ),
    ("why", {"base": {"run": "run-finished"}, "pointer": "documents[99]"}, 422, "did you mean"),
    ("recall", {"agent": "support", "query": "x", "limit": 0}, 422, "request"),
    ("start", {"agent": "support", "input": "hi"}, 422, "customer"),
    ("start", {"agent": "nobody", "input": "hi"}, 404, "unknown agent 'nobody'"),
    ("decide", {"run": "run-finished", "decisions": {"c1": {"approve": True}}}, 422, "does not wait"),
    ("decide", {"run": "run-waiting", "decisions": {"c9": {"approve": True}}}, 422, "no call waits"),
    ("decide", {"run": "run-waiting", "decisions": {"c2": {"approve": 1.5}}}, 422, "request"),
    (
        "decide",
        {"run": "run-waiting", "decisions": {"c2": {"approve": True, "arguments": {"number": "x"}}}},
        422,
        "amount: is required",
    ),
    (
        "decide",
        {"run": "run-waiting", "decisions": {"c2": {"approve": True, "arguments": '{"a": 1, "\\u0061": 2}'}}},
        422,
        "duplicate name 'a'",
    ),
]


def test_errors_name_the_problem_and_no_path_of_the_machine(url: str) -> None:
    failures: list[str] = []
    for path, body, status, problem in WRONG:
        with collected(failures, path, body, status, problem):
            answer = post(url, path, **body)
            text = answer.text
            assert answer.status_code == status, text
            assert problem in json.dumps(answer.json()["error"], ensure_ascii=False)
            assert "Traceback" not in text and "site-packages" not in text and str(PAGE.parent) not in text
    assert failures == []


def test_invalid_decisions_do_not_change_a_waiting_run(serve: Serve) -> None:
    source = shop()
    url = serve(source)
    post(url, "decide", run="run-waiting", decisions={"c9": {"approve": True}})
    assert get(f"{url}api/run?id=run-waiting").json()["status"] == "waiting"


@pytest.mark.parametrize(
    ("kind", "status"),
    [(RuntimeError, 500), (StoreUnavailable, 503), (IndexBroken, 503), (DatabaseUnavailable, 503), (ModelError, 503)],
)
def test_an_internal_error_is_logged_and_not_shown(
    serve: Serve, caplog: pytest.LogCaptureFixture, kind: type[Exception], status: int
) -> None:
    class Broken(LocalSource):
        async def runs(self, wanted: RunsWanted) -> Any:
            raise kind("/srv/secret-of-the-machine: cannot be read")

    answer = get(f"{serve(Broken())}api/overview")
    assert answer.status_code == status and "secret" not in answer.text
    assert "secret-of-the-machine" in caplog.text


def test_two_tenants_with_the_same_names_never_see_each_other() -> None:
    sources: dict[str, LocalSource] = {}
    for tenant in ("crimson", "azure"):
        session = Session("main")
        session.append(Message("user", f"secret of {tenant}"), Message("assistant", "ok"))
        agent = Agent(ScriptedModel.repeat("ok"), layers=Layers(TextPrompt(f"You serve {tenant}.")), name="desk")
        sources[tenant] = LocalSource([agent], sessions=[session])
        sources[tenant].add(agent.run_sync(f"ask {tenant}", run_id=f"run-{tenant}").journal)

    def of(request: Request) -> InspectorSource:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in sources:
            raise HTTPException(401, "unknown token", {"www-authenticate": "Bearer"})
        return sources[token]

    with serving(Starlette(routes=routes(of))) as (root, _):
        url = f"{root}/inspector/api/"
        for tenant, other in (("crimson", "azure"), ("azure", "crimson")):
            with httpx2.Client(timeout=LONG, headers={"authorization": f"Bearer {tenant}"}) as client:
                texts = [
                    client.get(f"{url}overview").text,
                    client.get(f"{url}session", params={"name": "main"}).text,
                    client.post(f"{url}compose", json={"base": {"session": "main", "turn": 0}}).text,
                    client.post(f"{url}payload", json={"base": {"run": f"run-{tenant}"}}).text,
                ]
                assert all(tenant in text for text in texts) and not any(other in text for text in texts)
                for answer in (
                    client.get(f"{url}run", params={"id": f"run-{other}"}),
                    client.post(f"{url}compose", json={"base": {"run": f"run-{other}"}}),
                    client.post(
                        f"{url}compose",
                        json={"base": {"session": "main", "turn": 0}, "against": {"run": f"run-{other}"}},
                    ),
                    client.post(f"{url}decide", json={"run": f"run-{other}", "decisions": {}}),
                ):
                    assert answer.status_code == 404 and answer.json()["error"]["kind"] == "Missing"
        for token in ({}, {"authorization": "Bearer green"}, {"authorization": "crimson"}):
            assert get(f"{url}overview", headers=token).status_code == (
                200 if token.get("authorization") == "crimson" else 401
            )
        assert get(f"{root}/inspector/main.js").status_code == 200


def test_lone_surrogates_and_numbers_without_a_json_form_are_sent(serve: Serve) -> None:
    session = Session("s")
    session.append(Message("user", "a\ud800b"), Message("assistant", "\u2028"))
    journal = Journal("desk", "r", Agent(ScriptedModel([]), "").context("x"))
    source = LocalSource([Agent(ScriptedModel([]), "Be brief.", name="desk")], sessions=[session], runs=[journal])
    url = serve(source)
    pieces = post(url, "compose", base={"session": "s", "turn": 0}).json()["view"]["messages"][-1]["pieces"]
    assert pieces[0]["text"] == "a\ud800b"
    assert inspector_routes._json({"x": float("nan"), "y": [float("inf")], "z": b"1", "k": {1}}).body == (
        b'{"x":"nan","y":["inf"],"z":"(1 bytes)","k":[1]}'
    )


def test_many_simultaneous_readers_receive_the_same_answer(serve: Serve) -> None:
    url = serve(shop(200))
    wanted = post(url, "compose", base={"run": "run-finished"}).json()
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(post(url, "compose", base={"run": "run-finished"}).json()))
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [wanted] * 12


def test_on_this_machine_only_the_token_and_the_name_of_this_machine_are_accepted() -> None:
    with serving(local_app(shop(), "the-token")) as (root, _):
        url = f"{root}/inspector/api/overview"
        good = {"authorization": "Bearer the-token"}
        assert get(url, headers=good).status_code == 200
        for wrong in (
            {},
            {"authorization": "Bearer the-toke"},
            {"authorization": "the-token"},
            {"cookie": "token=the-token"},
        ):
            answer = get(url, headers=wrong)
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        assert get(f"{url}?token=the-token").status_code == 401
        assert get(url, headers={**good, "host": "evil.example"}).status_code == 400
        assert "access-control-allow-origin" not in get(url, headers={**good, "origin": "http://evil"}).headers


async def test_a_source_has_the_endings_of_its_runs() -> None:
    source = LocalSource([support()])
    paused = waiting()
    source.add(paused.journal)
    source.add(finished())
    cut = Journal.loads(finished().dumps())
    cut.run_id, cut.entries = "cut", cut.entries[:3]
    source.add(cut)
    statuses = {one.run_id: one.state for one in (await source.runs(RunsWanted(limit=10))).runs}
    assert statuses == {"run-waiting": "waiting", "run-finished": "finished", "cut": "failed"}


@pytest.fixture
def journal_file(tmp_path: Path) -> Path:
    file = tmp_path / "one.journal"
    file.write_text(finished().dumps())
    return file


AGENT = "from tests.inspector.shop import support\nagent, number = support(), 3\n"


def inspecting(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    (folder / "desk.py").write_text(AGENT)
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); from agentkit.cli import main; main()"
    command = [sys.executable, "-c", code, "inspect", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_command_serves_a_run_and_a_conversation_of_a_store(tmp_path: Path, journal_file: Path) -> None:
    with Memory(tmp_path / ".agentkit", scope=Scope("local")) as memory:
        memory.session("ada").append(*talk(2).conversation)
    arguments = (journal_file.name, "ada", "--agent", "desk:agent", "--json", "--no-open")
    process = inspecting(tmp_path, *arguments)
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["url"]
        root, _, rest = address.partition("#token=")
        token, _, place = rest.partition("&to=")
        assert place == "/run/run-finished" and root.startswith("http://127.0.0.1:")
        with httpx2.Client(timeout=LONG, headers={"authorization": f"Bearer {token}"}) as client:
            found = client.get(f"{root}api/overview").json()
            assert [run["id"] for run in found["runs"]] == ["run-finished"] and found["sessions"] == ["ada"]
            view = client.post(f"{root}api/compose", json={"base": {"run": "run-finished"}}).json()["view"]
            assert view["messages"][0]["pieces"][0]["text"].startswith("You are the support desk")
            turn = client.post(
                f"{root}api/compose", json={"base": {"session": "ada", "turn": 0}, "kwargs": {"customer": "A"}}
            )
            assert turn.status_code == 200
        assert get(f"{root}api/overview").status_code == 401
    finally:
        process.terminate()
        process.communicate(timeout=LONG)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("nothing", "nobody"), "'nothing': no file and no conversation with messages has this name"),
        (("bad.journal",), "journal, line 1: not JSON"),
        (("new.journal",), "written by a newer agentkit"),
        (("--agent", "desk"), "desk"),
        (("--agent", "desk:nothing"), "nothing"),
        (("--agent", "missing_module:agent"), "missing_module"),
        (("--agent", "desk:number"), "expected an Agent"),
    ],
)
def test_the_command_reports_a_file_that_it_cannot_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], problem: str
) -> None:
    (tmp_path / "bad.journal").write_text("{oops\n")
    (tmp_path / "new.journal").write_text('{"journal": 99}\n')
    (tmp_path / "desk.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "desk", raising=False)
    done = CliRunner().invoke(app, ["inspect", "--no-open", *arguments])
    assert done.exit_code == 1 and problem in done.stderr and not done.stdout


def test_a_run_that_is_started_is_shown_while_it_runs(serve: Serve) -> None:
    agent = support(reply("Done."))
    url = serve(LocalSource([agent]))
    run = post(url, "start", agent="support", input="hi", kwargs={"customer": "A"}, session="new").json()["run"]
    for _ in range(200):
        found = get(f"{url}api/run", params={"id": run}).json()
        if found["status"] != "running":
            break
    assert found["status"] == "finished" and found["journal"]["answer"] == "Done."
    assert get(f"{url}api/session", params={"name": "new"}).json()["turns"][0]["run"] == run
