"""Prices of models in agent files."""

from __future__ import annotations

from pathlib import Path

from agentkit.agent_files import AgentFileError, load_agent
from agentkit.errors import AgentDefinitionError
from agentkit.models import Price
from tests.raising import raises

LOCAL = "http://h/v1#own"
VALID: dict[str, Price] = {
    "{input: 0.25, output: 2}": Price(0.25, 2.0),
    "{input: 0, output: 0}": Price(0, 0),
    "{input: 0.25, output: 2, cached: 0.025}": Price(0.25, 2.0, 0.025),
    "{input: 1, output: 5, long: {tokens: 200000, input: 2, output: 8, cached: 0.2}}": Price(
        1.0, 5.0, None, (200_000, Price(2.0, 8.0, 0.2))
    ),
}
INVALID: dict[str, list[str]] = {
    "0.25": ["model.price"],
    "{}": ["model.price.input", "model.price.output"],
    "{input: 1}": ["model.price.output"],
    "{input: -1, output: .inf}": ["model.price.input", "model.price.output"],
    "{input: x, output: 2000000000}": ["model.price.input", "model.price.output"],
    "{input: true, output: 1}": ["model.price.input"],
    "{input: 1, output: 1, cache: 1}": ["model.price.cache"],
    "{input: 1, output: 1, long: {input: 1, output: 1}}": ["model.price.long.tokens"],
    "{input: 1, output: 1, long: {tokens: -1, input: 1, output: 1, long: {}}}": [
        "model.price.long.tokens",
        "model.price.long.long",
    ],
}


def written(folder: Path, model: str, more: str = "") -> Path:
    path = folder / "agent.yaml"
    path.write_text(f"model:\n  {model}\nlimits: {{money: 1}}\n{more}")
    return path


def test_a_price_of_the_file_is_the_price_of_its_model(tmp_path: Path) -> None:
    for text, price in VALID.items():
        for more in ("", ", redact: all", ", chat_template: qwen"):
            agent = load_agent(written(tmp_path, f"{{name: '{LOCAL}', price: {text}{more}}}")).agent
            assert getattr(agent.chain.model, "price", None) == price, (text, more)


def test_invalid_prices_are_all_reported_with_their_keys(tmp_path: Path) -> None:
    wrong = []
    for text, keys in INVALID.items():
        with raises(AgentFileError, line=3) as caught:
            load_agent(written(tmp_path, f"name: {LOCAL}\n  price: {text}"))
        if sorted(problem.key for problem in caught.value.problems) != sorted(keys):
            wrong.append((text, caught.value.problems))
    assert not wrong


def test_the_model_of_summaries_has_its_price(tmp_path: Path) -> None:
    model = f"{{name: '{LOCAL}', price: {{input: 1, output: 2}}}}"
    for redact in ("", ", redact: all"):
        more = f"compaction: {{kind: summarise, tokens: 100, model: '{LOCAL}2', price: {{input: 3, output: 4}}}}"
        agent = load_agent(written(tmp_path, model.replace("}}", f"}}{redact}}}"), more)).agent
        assert getattr(agent.definition.summary_model, "price", None) == Price(3, 4)
    for kind, price in (("summarise", "{input: 3, output: 4}"), ("trim", "{input: 3, output: 4}"), ("trim", "3")):
        with raises(AgentFileError, line=4):
            load_agent(written(tmp_path, model, f"compaction: {{kind: {kind}, tokens: 100, price: {price}}}"))
    unpriced = f"compaction: {{kind: summarise, tokens: 100, model: '{LOCAL}2'}}"
    with raises(AgentDefinitionError, name="price", value="own2"):
        load_agent(written(tmp_path, model, unpriced)).agent.run_sync("Hi")


def test_the_price_of_the_file_does_not_apply_to_another_model(tmp_path: Path) -> None:
    path = written(tmp_path, f"{{name: '{LOCAL}', price: {{input: 1, output: 2}}}}")
    for model in (f"{LOCAL}2", "ollama:x"):
        with raises(AgentDefinitionError, name="price"):
            load_agent(path, model=model).agent.run_sync("Hi")
    assert load_agent(path, model="offline").agent.chain.model.name == "offline"
    # The offline model needs no price.
    with raises(AgentFileError, line=1):
        load_agent(written(tmp_path, "{name: offline, price: {input: 1, output: 2}}"))


def test_problems_of_all_keys_of_a_model_are_reported_together(tmp_path: Path) -> None:
    keys = "price: {input: -1, output: 1}, session_len: 0, control_tokens: drop, settings: {temperature: hot, stp: x}"
    path = tmp_path / "agent.yaml"
    path.write_text(f"model: {{name: '{LOCAL}', chat_template: qwen, {keys}}}\nlimits: {{steps: 0}}\n")
    with raises(AgentFileError) as caught:
        load_agent(path)
    places = ("price.input", "session_len", "control_tokens", "settings", "settings.temperature")
    expected = {"limits.steps", *[f"model.{place}" for place in places]}
    assert {problem.key for problem in caught.value.problems} == expected
    assert "temperature" in str(caught.value) and "stp" in str(caught.value)
