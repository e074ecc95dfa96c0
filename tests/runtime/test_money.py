"""Money: the cost of a run, and the limit of the cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentkit.models
from agentkit import (
    Agent,
    Journal,
    LimitExceeded,
    Limits,
    Message,
    OfflineModel,
    OpenAIModel,
    Reply,
    ScriptedModel,
    Session,
    Summarise,
    Usage,
)
from agentkit.errors import AgentDefinitionError
from agentkit.models import Price
from agentkit.models.prices import known_price
from agentkit.testing import Delayed
from tests.raising import raises
from tests.runtime.scripts import calling, valid

CHEAP = Price(input=1.0, output=10.0, cached=0.1)
MILLION = 1_000_000


async def echo() -> str:
    """Repeat the text."""
    return "echo"


def spent(text: str | Message, *tokens: int) -> Reply:
    return Reply(text if isinstance(text, Message) else Message("assistant", text), Usage(*tokens))


def test_a_run_costs_the_price_of_its_tokens_and_cached_tokens_have_their_price() -> None:
    script = [spent(calling("echo"), MILLION, 0, 0), spent("done", MILLION, 500_000, 600_000)]
    result = Agent(ScriptedModel(script, price=CHEAP), tools=[echo]).run_sync("x")
    assert result.cost == result.usage.money == pytest.approx(1.0 + 0.4 + 0.06 + 5.0)
    journal = Journal.loads(result.journal.dumps())
    assert journal.usage == result.usage


def test_an_unknown_cost_is_none_and_not_zero() -> None:
    assert Agent(ScriptedModel([spent("x", 10, 10)])).run_sync("x").cost is None
    assert Agent(OfflineModel()).run_sync("x").cost == 0
    inner = Agent(ScriptedModel([spent("inner", 10, 10)])).as_tool(name="ask", description="Asks.")
    script = [spent(calling(("ask", {"input": "?"})), 1, 1), spent("done", 1, 1)]
    assert Agent(ScriptedModel(script, price=CHEAP), tools=[inner]).run_sync("x").cost is None


numbers = st.integers(0, 10_000)
usages = st.builds(Usage, numbers, numbers, numbers, st.none() | st.integers(0, 100).map(float))


@given(usages, usages, usages)
def test_usages_add_up_in_any_order_and_an_empty_usage_changes_nothing(one: Usage, two: Usage, three: Usage) -> None:
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert one + Usage() == one


def test_a_run_ends_when_its_money_is_spent_and_has_a_valid_history() -> None:
    session = Session()
    model = ScriptedModel.repeat(spent(calling("echo"), 30_000, 1_000), price=CHEAP)  # 0.04 dollars
    with raises(LimitExceeded, value=0.1, limit="money") as caught:
        Agent(model, tools=[echo], limits=Limits(money=0.1)).run_sync("x", session=session)
    assert caught.value.limit == "money"
    assert len(model.requests) == 3
    assert valid(session.conversation)
    assert caught.value.usage.money == pytest.approx(0.12)
    returning = Agent(model, tools=[echo], limits=Limits(money=0.1, on_limit="return")).run_sync("x")
    assert returning.limit is not None and returning.limit.limit == "money"


@pytest.mark.parametrize("tokens", [(0, 0), (30_000, 0)], ids=["counts nothing", "counts"])
def test_an_endpoint_that_counts_no_tokens_does_not_make_a_run_free(tokens: tuple[int, int]) -> None:
    model = ScriptedModel.repeat(spent(calling("echo"), *tokens), price=Price(input=1_000, output=1_000))
    with pytest.raises(LimitExceeded) as caught:
        Agent(model, tools=[echo], limits=Limits(money=0.1, steps=100)).run_sync("word " * 50)
    assert caught.value.limit == "money"


@pytest.mark.parametrize("model", [ScriptedModel(["x"]), OpenAIModel("mine", base_url="http://127.0.0.1:9/v1")])
def test_a_model_without_a_price_is_refused_before_any_request(model: Any) -> None:
    session = Session()
    with raises(AgentDefinitionError, name="price"):
        Agent(model, limits=Limits(money=1)).run_sync("x", session=session)
    assert len(session.conversation) == 0


def test_an_inner_agent_without_a_price_is_not_run_if_the_outer_run_has_a_limit_of_money() -> None:
    inner = ScriptedModel(["never"])
    ask = Agent(inner).as_tool(name="ask", description="Asks.")
    outer = ScriptedModel([calling(("ask", {"input": "?"})), "done"], price=CHEAP)
    result = Agent(outer, tools=[ask], limits=Limits(money=1)).run_sync("x")
    assert "the price of the model" in result.messages[2].text
    assert len(inner.requests) == 0


def test_inner_agents_share_the_remaining_money_of_the_outer_run() -> None:
    inner = ScriptedModel.repeat(spent(calling("echo"), 30_000, 1_000), price=CHEAP)
    ask = Agent(inner, tools=[echo]).as_tool(name="ask", description="Asks.")
    outer = ScriptedModel([spent(calling(("ask", {"input": "?"})), 10_000, 1_000), "never"], price=CHEAP)
    with pytest.raises(LimitExceeded) as caught:
        Agent(outer, tools=[ask], limits=Limits(money=0.1)).run_sync("x")
    assert caught.value.limit == "money"
    assert len(inner.requests) == 3
    assert caught.value.usage.money == pytest.approx(0.14)


def test_simultaneous_inner_agents_do_not_spend_the_money_several_times() -> None:
    question = "word " * 2_000
    answer = Delayed(0.1, spent("answer", 2_000, 2_000))  # 0.04 dollars
    models = [ScriptedModel([answer], price=Price(10, 10)) for _ in range(8)]
    tools = [Agent(model).as_tool(name=f"ask{at}", description="Asks.") for at, model in enumerate(models)]
    calls = calling(*[(f"ask{at}", {"input": question}) for at in range(8)])
    outer = ScriptedModel([spent(calls, 1, 1), spent("done", 1, 1)], price=Price(10, 10))
    agent = Agent(outer, tools=tools, limits=Limits(money=0.12))
    result = agent.run_sync("x")
    asked = sum(len(model.requests) for model in models)
    assert asked == 2
    assert result.cost is not None and result.cost <= 0.12
    assert sum("limit of 0.12 US dollars" in message.text for message in result.messages) == 8 - asked


@pytest.mark.parametrize("money", [0, -1, float("nan")])
def test_an_impossible_limit_of_money_is_refused(money: float) -> None:
    with raises(AgentDefinitionError, name="money"):
        Limits(money=money)


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "1", None, True])
def test_an_invalid_price_is_refused(wrong: Any) -> None:
    with raises(AgentDefinitionError, name="input"):
        Price(input=wrong, output=1)
    model = ScriptedModel(["x"])
    model.price = 0.25  # type: ignore[assignment]
    with raises(AgentDefinitionError, name="price", value="float"):
        Agent(model).run_sync("x")


@pytest.mark.parametrize("wrong", [5, "ab", (1, 2), (-1, Price(1, 1)), (1, Price(1, 1), 2)])
def test_an_invalid_price_of_long_prompts_is_refused(wrong: Any) -> None:
    with raises(AgentDefinitionError, name="long"):
        Price(1, 1, long=wrong)


def test_the_provider_of_a_model_decides_about_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    price = OpenAIModel("gpt-5-mini").price
    assert price is not None and (price.input, price.cached, price.output) == (0.25, 0.025, 2)
    assert OpenAIModel("gpt-5-mini-2025-08-07").price == price
    assert OpenAIModel("gpt-5-mini", base_url="http://localhost:8000/v1").price is None
    assert OpenAIModel("gpt-5-mini", price=CHEAP).price == CHEAP
    assert OpenAIModel("gpt-5-mini-fast").price is None
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8000/v1")
    assert OpenAIModel("gpt-5-mini").price is None


def test_a_long_prompt_has_a_separate_price() -> None:
    price = known_price("api.openai.com", "gpt-5.4")
    assert price is not None and price.long is not None
    assert price.of(Usage(272_000, 0)) == pytest.approx(272_000 * price.input / MILLION)
    assert price.of(Usage(272_001, 10)) == pytest.approx(
        (272_001 * price.long[1].input + 10 * price.long[1].output) / MILLION
    )


def test_every_row_of_prices_has_a_source_and_a_date() -> None:
    rows = json.loads(Path(agentkit.models.__file__).with_name("prices.json").read_text("utf-8"))
    assert len({(row["host"], row["model"]) for row in rows}) == len(rows) > 40
    for row in rows:
        assert row["source"].startswith("https://") and row["date"][:2] == "20", row
        price = known_price(row["host"], row["model"])
        assert price is not None
        assert (price.cached or 0) <= price.input <= price.output


def summarising(summariser: ScriptedModel, limits: Limits) -> Agent[Any, str]:
    model = ScriptedModel([spent("answer", 10, 10)], price=CHEAP)
    return Agent(model, "S", compaction=Summarise(summariser, tokens=10, keep=0), limits=limits)


def test_the_cost_of_a_summary_is_counted_by_the_price_of_its_model() -> None:
    summariser = ScriptedModel([spent("notes", MILLION, 0)], price=Price(input=3, output=3))
    result = summarising(summariser, Limits(money=10)).run_sync("x", session=_long())
    assert result.journal.usage.money == pytest.approx(3 + 0.00011)
    with raises(AgentDefinitionError, name="price", value="scripted"):
        unpriced = ScriptedModel(["never"])
        summarising(unpriced, Limits(money=10)).run_sync("x", session=_long())
    assert not unpriced.requests


def test_the_price_of_summaries_is_known_before_a_run_spends_money() -> None:
    agent = summarising(ScriptedModel(["never"]), Limits(money=10))
    with raises(AgentDefinitionError, name="price", value="scripted"):
        agent.run_sync("x")
    model = agent.chain.model
    assert isinstance(model, ScriptedModel) and not model.requests


def _long() -> Session:
    session = Session()
    session.append(Message("user", "word " * 50), Message("assistant", "word " * 50))
    return session


def test_a_price_that_is_not_in_the_table_comes_from_the_package() -> None:
    pytest.importorskip("genai_prices", reason="needs the extra `prices`")
    groq = known_price("api.groq.com", "llama-3.3-70b-versatile")
    assert groq is not None and groq.output > groq.input > 0 and groq.long is None
    vertex = known_price("us-east1-aiplatform.googleapis.com", "google/gemini-2.5-pro")
    assert vertex is not None and vertex.long is not None
    threshold, long = vertex.long
    assert threshold == 200_000 and long.input > vertex.input and long.cached is not None
    for host, model in (("localhost:8000", "gpt-4o"), ("api.groq.com", "no-such-model"), ("", "gpt-4o")):
        assert known_price(host, model) is None
