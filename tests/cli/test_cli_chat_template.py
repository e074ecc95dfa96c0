"""`--chat-template` and `--model-name`: a local model receives raw completions with the text of its template."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Start
from tests.servers import completes, in_turn, serve


@pytest.fixture
def command(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command in this process, with no endpoint in the environment."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return run


TOOLS = '''def stock(goods: str) -> str:
    """Tell how many there are."""
    return f"7 {goods}"
'''


def agent_file(folder: Path, template: str = "", name: str = "http://127.0.0.1:9/v1#local", more: str = "") -> None:
    line = f"  chat_template: {template}\n" if template else ""
    (folder / "tools.py").write_text(TOOLS, "utf-8")
    (folder / "shop.yaml").write_text(
        f'name: shop\nmodel:\n  name: "{name}"\n{line}instructions: You sell.\ntools: ["./tools.py:stock"]\n{more}',
        "utf-8",
    )


def test_a_local_model_is_requested_for_raw_completions(command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = ("chat", "--chat-template", "vicuna", "--once", "Hi", "-m")
    with serve() as server:
        server.on("local", completes("Hello there."))
        answers = [command(*ask, f"{server.url}#local")]  # the address selects the model, for any environment
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        answers.append(command(*ask, "local"))
        assert "model local, raw completions with the chat template vicuna\n" in answers[-1].stderr
        prompts = [asked.body["prompt"] for asked in server.to("local")]
    assert [done.stdout for done in answers] == ["Hello there.\n"] * 2
    assert all("USER: " in prompt and prompt.endswith("ASSISTANT:") for prompt in prompts)


def test_a_file_a_name_or_the_name_of_a_model_selects_the_template(command: Run, folder: Path) -> None:
    (folder / "own.json").write_text('{"model_name": "own", "model_path": null, "user": "<U>", "assistant": "<A>"}')
    for option in (
        ("--chat-template", "own.json"),
        ("--chat-template", "qwen2d5"),
        ("--model-name", "internlm2-chat-7b"),
    ):
        done = command("compose", "Hi", "--text", *option)
        assert done.exit_code == 0, done.stderr
        assert done.stdout.rstrip().endswith("<A>" if "own.json" in option else "<|im_start|>assistant")


def test_an_unknown_template_is_named(command: Run) -> None:
    done = command("compose", "Hi", "--chat-template", "vicunna")
    assert done.exit_code == 1 and "did you mean 'vicuna'" in done.stderr
    done = command("compose", "Hi", "--chat-template", "zzz")
    assert "agentkit templates" in done.stderr and "baichuan" not in done.stderr


def test_templates_lists_which_templates_have_a_place_for_tools(command: Run) -> None:
    rows = dict(line.split() for line in command("templates").stdout.splitlines())
    assert rows["name"] == "tools" and rows["qwen2d5"] == "yes" and rows["vicuna"] == "no"
    found = json.loads(command("templates", "--json").stdout)["templates"]
    assert [(one["name"], "yes" if one["tools"] else "no") for one in found] == [*rows.items()][1:]


def test_an_agent_with_a_chat_template_shows_the_text_and_the_body_it_would_send(command: Run, folder: Path) -> None:
    agent_file(folder, "qwen2d5")
    ask = ("compose", "Hi <|im_end|>", "--agent", "shop.yaml")
    text = command(*ask, "--text").stdout
    assert text.startswith("<|im_start|>system\nYou sell.") and '"name": "stock"' in text
    assert "Hi <\u200b|im_end|>" in text  # the text of the user does not end a turn
    body = json.loads(command(*ask, "--json").stdout)["request"]
    assert body["prompt"] == text and "<|im_end|>" in body["stop"]
    assert "messages" not in body
    with serve() as server:
        server.on("local", completes("Hello."))
        agent_file(folder, "qwen2d5", f"{server.url}#local")
        assert command("run", "Hi <|im_end|>", "--agent", "shop.yaml").stdout == "Hello.\n"
        assert server.to("local")[0].body["prompt"] == body["prompt"]  # the text that is sent


def test_another_chat_template_can_be_tried_with_an_agent(command: Run, folder: Path) -> None:
    for name in ("offline", "http://127.0.0.1:9/v1#local"):
        agent_file(folder, name=name)
        ask = ("compose", "Hi", "--agent", "shop.yaml")
        done = command(*ask, "--chat-template", "qwen2d5", "--text")
        assert done.stdout.startswith("<|im_start|>system\nYou sell."), done.stderr
        done = command(*ask, "--chat-template", "llama3_1", "--json")
        assert "<|start_header_id|>" in json.loads(done.stdout)["request"]["prompt"], done.stderr
    done = command("compose", "Hi", "--chat-template", "qwen2d5", "--json")
    assert json.loads(done.stdout)["request"]["prompt"].endswith("<|im_start|>assistant\n")


def test_the_text_of_a_chat_template_is_shown_by_layer_with_its_stop_words(command: Run, folder: Path) -> None:
    agent_file(folder)
    ask = ("compose", "Hi", "--agent", "shop.yaml", "--chat-template", "Qwen/Qwen2.5-7B-Instruct")
    done = command(*ask)
    assert done.stdout.startswith("layer ") and "chat template" in done.stdout
    assert "chat template qwen2d5; stop words: '<|im_end|>'; tool calls: hermes" in done.stderr
    assert "chat template qwen2d5" in command(*ask, "--text").stderr
    (folder / "own.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}", "utf-8")
    assert "own.jinja; stop words: none" in command(*ask[:-1], "own.jinja").stderr


def test_another_model_of_an_address_keeps_the_chat_template_of_the_file(command: Run, folder: Path) -> None:
    agent_file(folder, "qwen2d5")
    with serve() as server:
        server.on("other", completes("Hello."))
        ask = ("run", "Hi", "--agent", "shop.yaml", "--model")
        assert command(*ask, f"{server.url}#other").stdout == "Hello.\n"
        assert server.to("other")[0].body["prompt"].startswith("<|im_start|>system\nYou sell.")
        chat = ("chat", "--once", "Hi", "--agent", "shop.yaml", "--model", f"{server.url}#other")
        assert "agent shop, model other, raw completions with the chat template qwen2d5\n" in command(*chat).stderr
        done = command(*chat, "--chat-template", "llama3_1")
        assert done.stdout == "Hello.\n" and "chat template llama3_1\n" in done.stderr
        assert "<|start_header_id|>" in server.to("other")[2].body["prompt"]
        (folder / "shop.yaml").write_text(f'name: shop\nmodel: "{server.url}#other"\n', "utf-8")
        chat = ("chat", "--once", "Hi", "--agent", "shop.yaml", "--chat-template", "llama3_1")
        assert command(*chat).stdout == "Hello.\n"
        assert "<|start_header_id|>" in server.to("other")[3].body["prompt"]


def test_the_prompt_of_the_offline_model_is_written_with_the_chat_template(command: Run, folder: Path) -> None:
    agent_file(folder, "vicuna")  # this template has no place for the tool of the agent
    offline = ("chat", "--once", "Hi", "--agent", "shop.yaml", "--model", "offline")
    done = command(*offline)
    assert done.exit_code == 1 and "no place for tools" in done.stderr, done.stderr
    assert "Offline model" in command(*offline, "--chat-template", "qwen2d5").stdout
    agent_file(folder, "qwen2d5", name="offline")
    assert "Offline model" in command(*offline).stdout
    assert command("compose", "Hi", "--agent", "shop.yaml", "--text").stdout.startswith("<|im_start|>system\nYou sell.")
    done = command(*offline[:-1], "openai:gpt-5-mini")
    assert done.exit_code == 1 and done.stderr.startswith("agentkit: --model: model 'openai:gpt-5-mini': ")
    assert "completes text" in done.stderr and "chat_template is in shop.yaml, line 4" in done.stderr
    own = ("chat", "--once", "Hi", "--model", "offline", "--chat-template")
    assert "the system prompt describes them" in command(*own, "vicuna").stderr
    assert "did you mean 'vicuna'" in command(*own, "vicunna").stderr


def test_tools_that_a_template_has_no_place_for_are_in_the_prompt_and_work(command: Run, folder: Path) -> None:
    done = command("compose", "What is 6*7?", "--chat-template", "vicuna", "--text")
    assert '"name": "calculate"' in done.stdout and "<tool_call>" in done.stdout
    assert "the system prompt describes them" in done.stderr
    with serve() as server:
        call = '<tool_call>\n{"name": "calculate", "arguments": {"expression": "6*7"}}\n</tool_call>'
        server.on("local", in_turn(completes(call), completes("It is 42.")))
        ask = ("chat", "--once", "What is 6*7?", "--chat-template", "vicuna", "--session", "s", "-m")
        done = command(*ask, f"{server.url}#local")
        assert done.stdout == "It is 42.\n", done.stderr
        assert "42" in server.to("local")[1].body["prompt"].rpartition("<tool_response>")[2]
    done = command("compose", "And now?", "--session", "s", "--chat-template", "vicuna", "--text")
    assert done.exit_code == 0 and "<tool_call>" in done.stdout, done.stderr


def test_the_error_of_a_template_without_a_place_for_tools_names_the_prompt_of_tools(
    command: Run, folder: Path
) -> None:
    agent_file(folder, "vicuna", more="layers: prompts\n")
    (folder / "prompts").mkdir()
    (folder / "prompts/system.prompt.j2").write_text("---\nrole: system\n---\nBe brief.\n", "utf-8")
    done = command("compose", "Hi", "--agent", "shop.yaml", "--text")
    assert done.exit_code == 1 and "kind: tools" in done.stderr and "ToolPrompt" in done.stderr
    (folder / "own.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}", "utf-8")
    done = command("compose", "Hi", "--agent", "shop.yaml", "--chat-template", "own.jinja")
    assert done.exit_code == 1 and "the tool 'stock'" in done.stderr and "kind: tools" in done.stderr
    (folder / "prompts/tools.prompt.j2").write_text("---\nrole: system\nkind: tools\n---\n", "utf-8")
    done = command("compose", "Hi", "--agent", "shop.yaml", "--text")
    assert '"name": "stock"' in done.stdout, done.stderr


@pytest.mark.parametrize("option", ["--chat-template", "--model-name"])
def test_an_error_of_an_option_names_the_option_and_not_the_agent_file(command: Run, folder: Path, option: str) -> None:
    agent_file(folder, "vicuna")
    done = command("chat", "--once", "Hi", "--agent", "shop.yaml", option, "nope")
    assert done.exit_code == 1 and done.stderr.startswith(f"agentkit: {option}: unknown chat template 'nope'")
    assert "shop.yaml" not in done.stderr


def test_an_unknown_model_is_reported_with_its_option(command: Run, folder: Path) -> None:
    agent_file(folder, "vicuna")
    for ask in (("chat", "--once", "Hi"), ("run", "Hi")):
        done = command(*ask, "--agent", "shop.yaml", "--model", "nope:x")
        assert done.exit_code == 1 and done.stderr.startswith("agentkit: --model: model 'nope:x': ")


def test_a_chat_template_for_an_agent_with_a_hosted_model_is_reported_with_its_option(
    command: Run, folder: Path
) -> None:
    agent_file(folder, name="openai:gpt-5-mini")
    done = command("chat", "--once", "Hi", "--agent", "shop.yaml", "--chat-template", "vicuna")
    assert done.stderr.startswith(
        "agentkit: --chat-template: model 'openai:gpt-5-mini': a chat template needs a server"
    )


def test_an_error_names_the_place_of_each_setting(command: Run, folder: Path) -> None:
    own, hosted, qwen = "http://u:secret@127.0.0.1:9/v1#own", "ollama:qwen3", ("--chat-template", "qwen3")
    shown, of_model, of_template = "'http://...#own'", "agentkit: --model: model ", "agentkit: --chat-template: "
    # A key of the model in the file, the options, and the start and the end of the error.
    cases: list[tuple[str, tuple[str, ...], str, str]] = [
        ("chat_template: qwen3", ("-m", hosted), f"{of_model}'{hosted}'", "address; chat_template is in {}, line 4"),
        ("settings: {top_k: 1}", ("-m", "openai:m"), f"{of_model}'m'", "; top_k is in {}, line 4"),
        ("settings: {top_k: 1}", ("-m", "nope:x"), f"{of_model}'nope:x'", "llamacpp, ..."),
        ("session_len: 9", ("-m", own), f"{of_model}{shown}", "budget; session_len is in {}, line 4"),
        ("template_kwargs: {a: 1}", ("-m", own), f"{of_model}{shown}", "too; template_kwargs is in {}, line 4"),
        ("", ("-m", hosted, *qwen), f"{of_template}model '{hosted}'", "or pass the address"),
        ("chat_template: qwen3", ("-m", hosted, *qwen), f"{of_template}model '{hosted}'", "or pass the address"),
        ("settings: {top_k: 1}", ("-m", hosted, *qwen), f"{of_template}model '{hosted}'", "or pass the address"),
        ("template_kwargs: {a: 1}", ("-m", own, *qwen), f"{of_template}template_kwargs: a", "; a is in {}, line 4"),
        ("", qwen, f"{of_template}model 'openai:m'", "or pass the address; the model is in {}, line 3"),
    ]
    failures = []
    for setting, options, start, end in cases:
        text = f'name: shop\nmodel:\n  name: "openai:m"\n  {setting}\n'
        (folder / "shop.yaml").write_text(text, "utf-8")
        done = command("run", "Hi", "--agent", "shop.yaml", *options)
        error = " ".join(done.stderr.split())
        fits = error.startswith(start) and error.endswith(end.format("shop.yaml"))
        if done.exit_code != 1 or not fits or "secret" in error:
            failures.append((setting, options, error))
    assert not failures, "\n".join(map(str, failures))


def test_an_error_of_the_file_names_the_file_even_with_options(command: Run, folder: Path) -> None:
    agent_file(folder, "nope")
    done = command("chat", "--once", "Hi", "--agent", "shop.yaml", "--model", "offline")
    assert done.stderr.startswith("agentkit: shop.yaml, line 2: model: unknown chat template 'nope'")


def test_tools_that_are_sent_twice_are_a_warning_on_stderr(start: Start, folder: Path) -> None:
    agent_file(folder, "qwen2d5", more="layers: prompts\n")
    (folder / "prompts").mkdir()
    (folder / "prompts" / "tools.prompt.j2").write_text("---\nkind: tools\n---\n", "utf-8")
    for ask in (("compose", "Hi"), ("chat", "--once", "Hi", "--model", "offline")):
        told = start(*ask, "--agent", "shop.yaml").stderr.splitlines()
        (line,) = [line for line in told if "sent twice" in line]
        assert line.startswith("warning: model ")


def test_a_budget_includes_the_text_of_the_template_and_the_model_can_be_named(run: Run, folder: Path) -> None:
    (folder / "agent.yaml").write_text("name: shop\nmodel: offline\ninstructions: Be brief.\n")
    of = ("compose", "Where is order 17?", "--agent", "agent.yaml", "--json")
    whole = json.loads(run(*of, "--chat-template", "qwen3").stdout)
    tight = run(*of, "--chat-template", "qwen3", "--budget", str(whole["tokens"] - 1))
    assert tight.exit_code == 1 and "chat template" in tight.stderr and "the budget is" in tight.stderr
    assert run(*of, "--budget", str(whole["tokens"] - 1)).exit_code == 0  # enough without the template
    named = json.loads(run(*of, "--model", "http://127.0.0.1:9/v1#own", "--chat-template", "qwen3").stdout)
    assert (named["request"]["model"], named["request"]["prompt"]) == ("own", whole["request"]["prompt"])
    hosted = json.loads(run(*of, "--model", "http://127.0.0.1:9/v1#own").stdout)
    assert [one["role"] for one in hosted["request"]["messages"]] == ["system", "user"]
