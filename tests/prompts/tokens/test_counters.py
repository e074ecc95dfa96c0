"""Token counters that use a real tokenizer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.prompts import (
    Conversation,
    Layers,
    Message,
    PromptContext,
    PromptError,
    TiktokenCounter,
    TokenCounter,
    TokenizersCounter,
    compose,
)
from agentkit.prompts.chat_templates import JinjaChatTemplate
from agentkit_prompts.composition.targets.chat_text import text_tokens
from agentkit_prompts.tokens.counter import ESTIMATE, prompt_count
from tests.effort import spread
from tests.prompts.laws import law

tiktoken = pytest.importorskip("tiktoken")
tokenizers = pytest.importorskip("tokenizers")

BYTES = {bytes([number]): number for number in range(256)}
TINY = tiktoken.Encoding(
    "tiny", pat_str=r"\s?\w+|\W", mergeable_ranks={**BYTES, b"ab": 256}, special_tokens={"<|end|>": 257}
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A byte-level BPE with the tokens `ab` and `<|end|>`, and with truncation, padding and framing."""
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    vocab = {letter: number for number, letter in enumerate(sorted(alphabet))}
    vocab["ab"] = len(vocab)
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [("a", "b")]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(["<|end|>"])
    made.post_processor = tokenizers.processors.TemplateProcessing("<|end|> $A", special_tokens=[("<|end|>", 257)])
    made.enable_truncation(3)
    made.enable_padding(length=50)
    path = tmp_path / "tiny-model" / "tokenizer.json"
    path.parent.mkdir()
    made.save(str(path))
    return path


@pytest.fixture(params=["tiktoken", "tokenizers"])
def counter(request: pytest.FixtureRequest, file: Path) -> TokenCounter:
    return TiktokenCounter(TINY) if request.param == "tiktoken" else TokenizersCounter(file)


def test_a_counter_counts_only_the_tokens_of_the_text(counter: TokenCounter) -> None:
    assert counter.estimated is False
    assert counter.count("") == 0
    assert counter.count("abab") == 2
    assert counter.count("abxé") == 4
    assert isinstance(counter, TokenCounter)


def test_a_special_token_in_the_text_is_text(counter: TokenCounter) -> None:
    assert counter.count("<|end|>") == len("<|end|>")
    assert counter.count("ab<|end|>") == len("ab<|end|>") - 1


def test_a_special_token_of_a_chat_template_is_one_token(counter: TokenCounter) -> None:
    count = prompt_count(counter)
    assert count("ab<|end|>ab<|end|>") == 4
    assert count("abxé") == counter.count("abxé")
    assert (count("\ud800<|end|>"), counter.count("<|end|>")) == (4, len("<|end|>"))


def test_the_count_of_a_final_text_is_equal_to_the_tokenizer_of_the_model(file: Path) -> None:
    counter, own = TokenizersCounter(file), tokenizers.Tokenizer.from_file(str(file))
    own.no_truncation()
    own.no_padding()
    template = JinjaChatTemplate(
        "{% for m in messages %}<|end|>{{ m.role }}:{{ m.content }}{% endfor %}", eos_token="<|end|>"
    )
    for user in ("ab", "ab <|end|> ab"):
        composition = compose(Layers("Rules."), PromptContext(user_input=user), counter=counter)
        text = composition.to_text(template)
        assert text.count("<|end|>") == 2
        assert text_tokens(composition, template) == len(own.encode(text, add_special_tokens=False))


def test_the_count_of_single_messages_is_equal_to_the_count_of_the_text(tmp_path: Path) -> None:
    marks = ["<|im_start|>", "<|im_end|>"]
    encoding = tiktoken.Encoding(
        "chatml",
        pat_str=r"\s?\w+|\W",
        mergeable_ranks=BYTES,
        special_tokens={mark: 300 + number for number, mark in enumerate(marks)},
    )
    history = Conversation([Message("user", "One?"), Message("assistant", "Two."), Message("user", marks[0])])
    ctx = PromptContext(user_input="Three?", conversation=history)
    composition = compose(Layers("Rules."), ctx, counter=TiktokenCounter(encoding))
    text = composition.to_text("qwen2d5")
    assert text_tokens(composition, "qwen2d5") == len(encoding.encode(text, allowed_special="all"))
    plain = len(encoding.encode_ordinary(text))
    assert plain - text_tokens(composition, "qwen2d5") == sum(text.count(mark) * (len(mark) - 1) for mark in marks)


def test_a_counter_without_a_count_for_prompts_counts_them_as_texts() -> None:
    assert prompt_count(ESTIMATE)("<|end|>") == ESTIMATE.count("<|end|>")


@pytest.mark.parametrize("text", spread(["\ud800", "a\udfff", "\0", "🍚" * 100, " " * 300_000, "x" * 300_000], 2))
def test_any_text_can_be_counted(counter: TokenCounter, text: str) -> None:
    assert counter.count(text) > 0
    assert prompt_count(counter)(text) > 0


@law
@given(st.text(max_size=50), st.text(max_size=50))
def test_a_cached_count_is_equal(one: str, other: str) -> None:
    counter = TiktokenCounter(TINY)
    first = counter.count(one)
    counter.count(other)
    assert counter.count(one) == first == len(TINY.encode_ordinary(one))


def test_a_text_is_tokenized_once_until_the_cache_is_full() -> None:
    class Counting:
        name = "counting"
        asked = 0

        def encode_ordinary(self, text: str) -> list[int]:
            self.asked += 1
            return list(map(ord, text))

    encoding = Counting()
    counter = TiktokenCounter(encoding)  # type: ignore[arg-type]
    assert [counter.count("ab"), counter.count("ab"), encoding.asked] == [2, 2, 1]
    for number in range(5):
        counter.count(f"{number}" * 1_000_000)
    assert [counter.count("ab"), encoding.asked] == [2, 7]
    assert [counter.count_prompt("ab"), counter.count_prompt("ab"), encoding.asked] == [2, 2, 8]


def test_a_counter_fits_a_composition_to_its_budget(counter: TokenCounter) -> None:
    ctx = PromptContext(user_input="ab" * 10)
    composition = compose(Layers("ab " * 5), ctx, counter=counter, budget=100)
    assert composition.tokens <= 100
    assert composition.counter is counter


def test_a_counter_has_a_name_for_tables(file: Path) -> None:
    assert TiktokenCounter(TINY).name == "tiny"
    assert TokenizersCounter(file).name == "tiny-model"
    assert repr(TokenizersCounter(str(file.rename(file.with_name("qwen.json"))))) == "TokenizersCounter('qwen')"


def test_the_error_of_an_unknown_encoding_lists_the_encodings() -> None:
    with pytest.raises(PromptError) as caught:
        TiktokenCounter("nope")
    assert (caught.value.name, caught.value.value) == ("encoding", "nope")


def test_the_failure_of_a_download_is_an_error_with_the_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(PromptError) as raised:
        TiktokenCounter("p50k_edit")
    assert raised.value.name == "p50k_edit"
    assert type(raised.value.__cause__).__name__ == "ProxyError"


def test_the_error_names_a_file_that_is_not_a_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    for content in (None, b"", b"{}", b"\xff\xfe", b'{"version": "1.0"}'):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(PromptError) as caught:
            TokenizersCounter(path)
        assert caught.value.path == str(path)


def test_the_error_names_a_text_without_tokens(tmp_path: Path) -> None:
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"known": 0}, unk_token="[UNK]"))
    path = tmp_path / "words.json"
    made.save(str(path))
    counter = TokenizersCounter(path)
    assert counter.count("known") == 1
    with pytest.raises(PromptError) as caught:
        counter.count("unknown")
    assert (caught.value.name, caught.value.value) == ("words", "unknown")


@pytest.mark.parametrize("package", ["tiktoken", "tokenizers"])
def test_the_error_of_a_missing_library_names_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PromptError) as caught:
        TiktokenCounter() if package == "tiktoken" else TokenizersCounter("tokenizer.json")
    assert caught.value.name == package


def test_neither_library_is_loaded_before_it_is_used() -> None:
    code = "import sys; from agentkit.prompts import *; print({'tiktoken', 'tokenizers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_counter_of_another_type_is_refused() -> None:
    others: list[Any] = ["Qwen/Qwen2.5-7B-Instruct", "", ["a"], len]
    for other in others:
        with pytest.raises(PromptError) as caught:
            compose(Layers("Be brief."), PromptContext(user_input="Hi"), counter=other)
        assert caught.value.name == "counter"
