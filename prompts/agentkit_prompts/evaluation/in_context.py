"""`InContext`: the prompts of one evaluation, from templates, worked examples and the format of a model."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from agentkit_prompts.composition.targets.chat_text import chat_template_of
from agentkit_prompts.errors import InContextError, Problem, Problems, error_of_problems, raise_problems
from agentkit_prompts.evaluation.dataset_reader import DatasetReader, Row
from agentkit_prompts.evaluation.dialogues import dialogue_requests
from agentkit_prompts.evaluation.inferencer import Inferencer
from agentkit_prompts.evaluation.meta.api_meta_template import CHAT_META, ApiMetaTemplate
from agentkit_prompts.evaluation.meta.chat_messages import MediaRoot, chat_messages, to_messages
from agentkit_prompts.evaluation.meta.meta_base import MetaParser, Mode
from agentkit_prompts.evaluation.meta.meta_template import MetaTemplate
from agentkit_prompts.evaluation.problems import at_row
from agentkit_prompts.evaluation.prompt_list import PromptList, copies
from agentkit_prompts.evaluation.retrievers import fixed_rows, retrieve
from agentkit_prompts.evaluation.row_checks import (
    answer_column,
    no_place_message,
    problems_of_rows,
    problems_of_templates,
    warn_of_columns,
    warn_of_no_place,
    warn_of_own_answers,
)
from agentkit_prompts.evaluation.row_template import RowTemplate
from agentkit_prompts.evaluation.training_sample import training_sample
from agentkit_prompts.tree.examples import ExampleSelector, StaticSelector

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.protocol import ChatTemplate
    from agentkit_prompts.chat_templates.template_finder import GivenTemplate
    from agentkit_prompts.ranking.embedder import Embedder

_NONE = StaticSelector(0)
_NO_EXAMPLES = "a dialogue shows no worked examples; use ZeroRetriever"


class RowPrompt(NamedTuple):
    """One prompt of a row."""

    row: int
    """Index of the row."""
    label: Any
    """Scored label; None in mode `gen`."""
    ids: tuple[int, ...]
    """Indices of the worked examples in the training rows."""
    prompt: Any
    """Result of the template, independent of a model: text, a `PromptList`, or messages."""
    final: Any
    """The input of the model; without a model the same object as `prompt`."""
    turn: int = 0
    """Index of the request in a dialogue; 0 for other requests."""


class InContext:
    """The prompts of one evaluation (`infer_cfg` and `reader_cfg` of the OpenCompass and AISBench documents).

    Args:
        reader: Names of the input columns and of the answer column, whose values prompts do not show.
        prompt_template: Template of a row; by default the `ice_template`.
        ice_template: Template of a training row as a worked example.
        retriever: Selector of the examples; no examples by default.
        train: Rows from which examples are selected.
        inferencer: Kind of requests: one per row (the default), per turn of a dialogue, or per scored label.
        separator: Text between two worked examples, unless they are messages.
        end: Text after the last example; by default a line feed if examples are shown.

    Raises:
        InContextError: The parts do not fit together; names all problems.
    """

    def __init__(
        self,
        reader: DatasetReader,
        prompt_template: RowTemplate | None = None,
        *,
        ice_template: RowTemplate | None = None,
        retriever: ExampleSelector = _NONE,
        train: Sequence[Row] = (),
        inferencer: Inferencer | None = None,
        separator: str = "\n",
        end: str | None = None,
    ) -> None:
        inferencer = inferencer or Inferencer(name="GenInferencer")
        self._fixed_ids = fixed_rows(retriever, len(train))
        shows = self._fixed_ids != []
        self.reader = reader
        self.prompt_template = _row_template(prompt_template, ice_template)
        self.ice_template = ice_template
        self.retriever = retriever
        self.train = train
        self.inferencer = inferencer
        if end is None:
            end = "\n" * shows
        self.separator, self.end = separator, end
        # As in OpenCompass, examples that are dialogues have no separators.
        if ice_template is not None and ice_template.is_dialogue:
            self.separator = self.end = ""
        self._rendered_examples: dict[tuple[int, bool], Any] = {}
        problems = problems_of_rows(reader, retriever, self._fixed_ids, train)
        if shows:
            problems += self._problems_of_examples("ice_template" if prompt_template is None else "prompt_template")
        raise_problems(InContextError, "infer_cfg", problems)
        if shows:
            warn_of_no_place(self.prompt_template)

    @property
    def mode(self) -> Mode:
        """`ppl` if the prompts are scored with their labels, `gen` if the model replies to them."""
        if self.inferencer.asks in ("ppl", "ll"):
            return "ppl"
        return "gen"

    def _problems_of_examples(self, name: str) -> Problems:
        """Return the reasons why prompts cannot contain worked examples; `name` is the argument to change."""
        if self.inferencer.asks == "dialogue":
            return [Problem("retriever", _NO_EXAMPLES)]
        return problems_of_templates(self.prompt_template, self.ice_template, name)

    @classmethod
    def from_cfg(
        cls,
        infer_cfg: Mapping[str, Any],
        reader_cfg: Mapping[str, Any] | DatasetReader,
        *,
        train: Sequence[Row] = (),
        embedder: Embedder | None = None,
    ) -> InContext:
        """Read the configuration dicts of a dataset.

        The value of a key `type` is a class, its name or its dotted name. Classes of the original suite are replaced by
        classes of this package with the same name.

        Args:
            infer_cfg: `prompt_template`, `ice_template`, `retriever`, `inferencer`.
            reader_cfg: `input_columns`, `output_column`, templates, ranges and splits.
            train: The rows that the retriever chooses from.
            embedder: Embedder of a `TopkRetriever`.

        Raises:
            InContextError: A key or type is unknown or a value is invalid; names all problems.
        """
        from agentkit_prompts.evaluation.config.infer_cfg import read_cfg

        return cls(train=train, **read_cfg(infer_cfg, reader_cfg, embedder))

    def labels(self, rows: Sequence[Row] = ()) -> list[Any]:
        """Return the labels to score: of the inferencer, else of a template, else all different answers of `rows`."""
        templates = (self.prompt_template, self.ice_template)
        for labels in (self.inferencer.labels, *[template.labels for template in templates if template is not None]):
            if labels:
                return list(labels)
        answer = self.reader.output_column
        if answer is None:
            return []
        return _distinct([row[answer] for row in rows if answer in row])

    def ids(self, rows: Sequence[Row]) -> list[tuple[int, ...]]:
        """Return, for each row, the indices of its worked examples in the training rows.

        Raises:
            InContextError: The retriever failed, or a row lacks an input column.
        """
        # Fixed examples need no queries, so that a row without its input columns can still have a prompt.
        if self._fixed_ids is not None:
            return [tuple(map(int, self._fixed_ids))] * len(rows)
        pool = [self.reader.example(number, row) for number, row in enumerate(self.train)]
        return retrieve(self.retriever, [self.reader.query(row) for row in rows], pool)

    def examples(self, ids: Sequence[int], *, keep_separator: bool = True) -> Any:
        """Return training rows as worked examples, rendered by their template: text, a `PromptList`, or messages.

        Args:
            ids: Indices of training rows, in the order in which they are shown.
            keep_separator: True to keep the `sep_token` of the template.

        Raises:
            InContextError: The template is missing, an id is out of range, or rows lack the answer that selects their
                label.
        """
        if not ids:
            return self.end
        template = self._checked(ids)
        return self._join_examples([self._example(template, number, keep_separator) for number in ids])

    def _join_examples(self, items: Sequence[Any]) -> Any:
        if all(isinstance(item, str) for item in items):
            return self.separator.join(items) + self.end
        # Between messages of a chat API no text is possible, so they have no separator.
        if not any(isinstance(item, str | PromptList) for item in items):
            return [message for item in items for message in copies(item)]
        return self._join_turns(items)

    def _join_turns(self, items: Sequence[Any]) -> PromptList:
        examples = PromptList()
        for item in items:
            # As in OpenCompass, the separator is a part of an item that is text, and a separate item after turns.
            if isinstance(item, str):
                examples.append(item + self.separator)
                continue
            examples += item
            if self.separator:
                examples.append(self.separator)
        examples.append(self.end)
        return examples

    def _example(self, template: RowTemplate, number: int, keep_separator: bool) -> Any:
        """Return a training row rendered by the template of examples; the result is cached."""
        key = (number, keep_separator)
        if key not in self._rendered_examples:
            row, answer = self.train[number], self.reader.output_column
            label = None if answer is None else row.get(answer)
            self._rendered_examples[key] = template.ice_item(row, label, keep_separator=keep_separator)
        return self._rendered_examples[key]

    def prompt(
        self, row: Row, ids: Sequence[int] | None = None, label: Any = None, *, keep_separator: bool | None = None
    ) -> Any:
        """Return the prompt of a row rendered by its template: text, a `PromptList`, or messages.

        For a dialogue, the prompt is the whole dialogue with its answers; `requests` yields single turns.

        Args:
            row: Values by the names of columns.
            ids: Indices of the training rows to show; by default the retriever selects them for this row.
            label: Label to score, in mode `ppl`.
            keep_separator: True to keep the separators of the template in examples; by default only in mode `ppl`.

        Raises:
            InContextError: The label or row is unknown, or the examples do not fit the template.
        """
        template, is_scored = self.prompt_template, self.mode == "ppl"
        if ids is None:
            ids = self.ids([row])[0]
        if keep_separator is None:
            keep_separator = is_scored
        ice = self.examples(ids, keep_separator=keep_separator)
        if is_scored:
            prompt = template.label_item(row, label, ice=ice)
        else:
            hide, instead = self.reader.output_column, self.inferencer.gen_field_replace_token
            prompt = template.item(row, ice=ice, hide=hide, instead=instead)
        if ids and template.ice_token is None:
            raise InContextError(no_place_message("the template"), name="ice_token")
        return prompt

    def requests(self, row: Row, ids: Sequence[int] | None = None) -> Generator[Any, str | None, list[str | None]]:
        """Yield the prompts of a row, rendered by its template; the caller sends the answer to each prompt.

        A row is one request; a dialogue has one request for each turn that its `infer_mode` requests. The caller sends
        None for a failed request.

        Returns:
            The answers, in order.

        Raises:
            InContextError: As `prompt`; or the row has no dialogue, or lacks answers for its turns.
        """
        mode = self.inferencer.mode
        if mode is None:
            return [(yield self.prompt(row, ids))]
        # A dialogue cannot have a retriever, so the caller has passed `ids`.
        if ids:
            raise InContextError(_NO_EXAMPLES, name="ids")
        return (yield from dialogue_requests(self.prompt_template, self.reader, row, mode))

    def written(self, prompt: Any, model: MetaParser | ChatTemplate | None = None) -> Any:
        """Return a prompt as input of a model: text or messages.

        Args:
            prompt: Result of `prompt` or `requests`.
            model: A meta template, or any chat template; None joins the texts of the prompt by newlines.

        Raises:
            InContextError: The model lacks a role of the prompt.
        """
        if model is None:
            model = MetaTemplate()
        parse = getattr(model, "parse", None)
        if parse is not None:
            return parse(prompt, self.mode)
        messages = chat_messages(ApiMetaTemplate(CHAT_META).parse(prompt, self.mode))
        return cast("ChatTemplate", model).render(messages, add_generation_prompt=self.mode == "gen")

    def final(
        self,
        row: Row,
        model: MetaParser | ChatTemplate | None = None,
        ids: Sequence[int] | None = None,
        label: Any = None,
    ) -> Any:
        """Return a row as input of a model: text or messages.

        Args:
            row: Values by the names of columns.
            model: As for `written`.
            ids: As for `prompt`.
            label: Label to score, in mode `ppl`.

        Raises:
            InContextError: As `prompt` and `written`.
        """
        return self.written(self.prompt(row, ids, label, keep_separator=False), model)

    def prompts(self, rows: Sequence[Row], model: MetaParser | ChatTemplate | None = None) -> Iterator[RowPrompt]:
        """Yield the prompts of all rows: one prompt per label in mode `ppl`, one per turn of a dialogue.

        Raises:
            InContextError: As `final`; or no row contains a declared column, or the prompts of a dialogue require
                answers of the model, see `requests`.
        """
        self.reader.check((), rows)
        if self.inferencer.mode == "every":
            raise InContextError(
                "infer_mode 'every' requires the answers of the model for each turn: run the evaluation with a model, "
                "or send the answers to `requests`; 'every_with_gt' and 'last' require no answers",
                name="infer_mode",
                value="every",
            )
        self.warn_of_doubts(rows)
        labels = self.labels(rows) if self.mode == "ppl" else [None]
        for number, (row, ids) in enumerate(zip(rows, self.ids(rows), strict=True)):
            try:
                yield from self._prompts_of_row(number, row, ids, labels, model)
            except InContextError as error:
                raise at_row(number, error) from error

    def _prompts_of_row(
        self,
        number: int,
        row: Row,
        ids: tuple[int, ...],
        labels: Sequence[Any],
        model: MetaParser | ChatTemplate | None,
    ) -> Iterator[RowPrompt]:
        if self.inferencer.mode is not None:
            for turn, prompt in enumerate(self.requests(row, ids)):
                final = prompt if model is None else self.written(prompt, model)
                yield RowPrompt(number, None, ids, prompt, final, turn)
            return
        for label in labels:
            prompt = self.prompt(row, ids, label)
            final = prompt if model is None else self.final(row, model, ids, label)
            yield RowPrompt(number, label, ids, prompt, final)

    def samples(
        self,
        rows: Sequence[Row],
        chat_template: GivenTemplate | None = None,
        *,
        root: MediaRoot = None,
        allow_media: bool = False,
        **kwargs: Any,
    ) -> Iterator[dict[str, Any]]:
        """Yield a fine-tuning row for each row: the prompt that the model gets, and the true answer as its reply.

        Args:
            rows: Rows with the output column.
            chat_template: As for `Composition.to_sample`; with a template that only completes text, such as `base`, the
                answer directly follows the prompt. `loss_spans` contain the reply only, not worked examples.
            root: Folder of the files of media, as for `to_messages`.
            allow_media: As for `to_messages`.
            kwargs: Other values that the template reads.

        Raises:
            InContextError: The rows are invalid, a row lacks its answer, or the evaluation scores labels or has several
                turns.
            ChatTemplateError: The template refuses a prompt.
        """
        answer = answer_column(self.reader, self.inferencer, rows)
        template = None if chat_template is None else chat_template_of(chat_template, None)
        ids_of_rows = self.ids(rows)
        self.warn_of_doubts(rows, ids_of_rows)
        for row, ids in zip(rows, ids_of_rows, strict=True):
            prompt = self.prompt(row, ids, keep_separator=False)
            chat = self.written(prompt, ApiMetaTemplate(CHAT_META))
            messages = to_messages(chat, root=root, allow_media=allow_media)
            yield training_sample(messages, partial(self.written, prompt), str(row[answer]), template, kwargs)

    def warn_of_doubts(self, rows: Sequence[Row], ids: Sequence[tuple[int, ...]] = ()) -> None:
        """Warn of columns that are probably misspelt, and of rows that are among their worked examples `ids`."""
        warn_of_columns(rows, self.train, self.prompt_template, self.ice_template, self.reader.input_columns)
        if ids:
            warn_of_own_answers(rows, self.train, ids, self.reader.output_column)

    def _checked(self, ids: Sequence[int]) -> RowTemplate:
        """Return the template of examples, after a check of the training rows to show.

        Raises:
            InContextError: The template is missing, or these rows cannot be shown.
        """
        template, size = self.ice_template, len(self.train)
        if template is None:
            raise InContextError(
                f"{len(ids)} rows are selected as worked examples without an ice_template; pass one, or use a "
                f"ZeroRetriever",
                name="ice_template",
            )
        odd = ", ".join([repr(number) for number in ids if type(number) is not int or number not in range(size)])
        if odd:
            text = f"worked examples: no row {odd} to show: {size} rows exist, counted from 0"
            raise InContextError(text, name="ids", value=odd)
        # Only a template with labels needs the answer of a row, which selects the text of a label.
        if template.labels:
            self._check_answers(ids, template.labels)
        return template

    def _check_answers(self, ids: Sequence[int], labels: Sequence[Any]) -> None:
        answer = self.reader.output_column
        without = [str(number) for number in ids if answer is None or answer not in self.train[number]]
        if without:
            raise InContextError(
                f"worked examples: rows {', '.join(without)} have no column {answer!r}, whose value chooses one of "
                f"the labels {', '.join(map(repr, labels))}",
                path=f"train[{without[0]}]",
                name=answer,
            )


def _distinct(values: Sequence[Any]) -> list[Any]:
    """Return values without repetitions, in order."""
    try:
        return list(dict.fromkeys(values))
    except TypeError:
        # Lists and dicts have no hash. A quadratic search is sufficient for the few labels.
        return [value for number, value in enumerate(values) if value not in values[:number]]


def _row_template(prompt_template: RowTemplate | None, ice_template: RowTemplate | None) -> RowTemplate:
    """Return the template of rows; by default the template of the examples."""
    template = ice_template if prompt_template is None else prompt_template
    if template is None:
        text = "missing, and so is ice_template: pass one of them"
        raise error_of_problems(InContextError, "infer_cfg", [Problem("prompt_template", text)])
    return template
