"""Snippets of the OpenCompass document about meta prompts, with our names and the output of the document."""

from __future__ import annotations

import pytest

from agentkit.prompts.evaluation import InContext, InContextWarning, MetaTemplate, PromptTemplate
from tests.prompts.evaluation.refusals import warned
from tests.prompts.evaluation.test_meta_templates import INNER, MOSS

META = {**MOSS, "begin": "meta instruction\nYou are an AI assistant.\n"}
ASKED = "</input>\nA. </A>\nB. </B>\nC. </C>\nD. </D>\nAnswer: "
HINT = "The following are multiple choice questions (with answers) about "
READER = {"input_columns": ["input", "A", "B", "C", "D"], "output_column": "target"}
ROW = {"input": "Which?", "A": "Low", "B": "High", "C": "Shallow", "D": "Sand", "target": "A"}
QUESTION = "Which?\nA. Low\nB. High\nC. Shallow\nD. Sand\nAnswer: "
COLUMNS = {name: f"</{name}>" for name in ("input", "A", "B", "C", "D", "target")}


def system(topic: str) -> dict[str, str]:
    return {"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": f"{HINT}{topic}."}


MMLU = {
    "type": "PromptTemplate",
    "template": {
        "begin": [system("physics"), "</E>"],
        "round": [{"role": "HUMAN", "prompt": ASKED}, {"role": "BOT", "prompt": "</target>"}],
        "end": "end of dataset prompt template.",
    },
    "column_token_map": COLUMNS,
    "ice_token": "</E>",
}
SCORES = {"type": "PPLInferencer"}


def test_a_meta_template_alone() -> None:
    # The document prints a space after each colon, a literal `\n`, and no line end after "meta instruction".
    meta = MetaTemplate(META)
    turns = PromptTemplate({"round": [{"role": "HUMAN", "prompt": ""}, {"role": "BOT", "prompt": ""}]}).item({})
    begin = "meta instruction\nYou are an AI assistant.\n<|HUMAN|>:脷\n"
    assert meta.parse(turns, "ppl") == f"{begin}{INNER}<|MOSS|>:氡\nend of conversion"
    assert meta.parse(turns, "gen") == f"{begin}{INNER}<|MOSS|>:"
    assert meta.eos_token_id == 65605


def test_the_template_of_a_dataset_within_the_meta_template() -> None:
    # Printed with a line end between the two ends, which neither of them has.
    begin = "meta instruction\nYou are an AI assistant.\n"
    expected = f"{begin}<|SYSTEM|>: {HINT}physics.\n<|HUMAN|>:{QUESTION}脷\n{INNER}<|MOSS|>:"
    meta = MetaTemplate(META)
    asks = InContext.from_cfg({"prompt_template": MMLU}, READER)
    assert asks.final(ROW, meta) == expected
    scores = InContext.from_cfg({"prompt_template": MMLU, "inferencer": SCORES}, READER)
    end = "氡\nend of dataset prompt template.end of conversion"
    assert scores.final(ROW, meta, label="A") == f"{expected}A{end}"


def test_labels_can_be_dialogues() -> None:
    labels = {
        target: {
            "begin": [system("college biology"), "</E>"],
            "round": [{"role": "HUMAN", "prompt": ASKED}, {"role": "BOT", "prompt": target}],
        }
        for target in "ABCD"
    }
    made = {"template": labels, "column_token_map": COLUMNS, "ice_token": "</E>"}
    icl = InContext.from_cfg({"prompt_template": made, "inferencer": SCORES}, READER)
    assert icl.labels() == list("ABCD")
    found = [icl.final(ROW, MetaTemplate(META), label=label) for label in "ABCD"]
    assert [text.partition("<|MOSS|>:")[2] for text in found] == [f"{one}氡\nend of conversion" for one in "ABCD"]
    assert all(f"{HINT}college biology.\n<|HUMAN|>:{QUESTION}" in text for text in found)


def test_keys_of_sections_and_models_without_a_meta_template() -> None:
    assert PromptTemplate({"begin": "x", "round": []}).labels == ()
    labelled = {"begin": "x", "round": "y", "A": "z"}
    assert warned(lambda: PromptTemplate(labelled)) == ["A"]
    with pytest.warns(InContextWarning):
        assert PromptTemplate(labelled).labels == ("begin", "round", "A")
    icl = InContext.from_cfg(
        {"prompt_template": {"template": {"round": [{"role": "HUMAN", "prompt": "{input}"}]}}}, READER
    )
    assert icl.final({**ROW, "input": "Hi"}) == "Hi"
    fallback = {key: value for key, value in META.items() if key != "reserved_roles"}
    text = InContext.from_cfg({"prompt_template": MMLU}, READER).final(ROW, MetaTemplate(fallback))
    assert f"<|HUMAN|>:{HINT}physics.脷\n" in text


def test_a_field_of_the_dataset_overrides_the_meta_template() -> None:
    turns = [{"role": "HUMAN", "prompt": "x"}, {"role": "THOUGHTS", "prompt": "Hm.", "end": "!"}]
    text = MetaTemplate(META).parse(PromptTemplate({"round": turns}).item({}))
    assert "<|Inner Thoughts|>:Hm.!" in text and "<|Commands|>:None蝮" in text
    empty = PromptTemplate({"round": [{"role": "HUMAN"}]}).item({})
    assert warned(lambda: MetaTemplate(META).parse(empty)) == ["HUMAN"]
