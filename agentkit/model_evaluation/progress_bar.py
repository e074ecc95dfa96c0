"""Display of the progress of an evaluation: a bar on stderr, or a custom function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from agentkit.errors import AgentDefinitionError
from agentkit.model_evaluation.evaluation_result import EvaluationProgress
from agentkit_prompts.extras import install

OnProgress: TypeAlias = Callable[[EvaluationProgress], object]
"""Called after each row."""


@contextmanager
def progress_listener(progress: bool | OnProgress, total: int) -> Iterator[OnProgress | None]:
    """Yield the function to call after each row, or None without a display.

    Args:
        progress: True for a bar, False for no display, or a function.
        total: Number of rows.

    Raises:
        AgentDefinitionError: `progress` is True and `rich` is not installed, or `progress` is neither a bool nor a
            function.
    """
    if callable(progress):
        yield progress
    elif progress is True:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        except ImportError as error:
            raise AgentDefinitionError(f"progress=True needs rich: pass a function, or {install('cli')}") from error
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("rows", total=total)

            def show(now: EvaluationProgress) -> None:
                text = "rows"
                if now.failed:
                    text = f"rows ({now.failed} failed)"
                bar.update(task, description=text, completed=now.done, total=now.total)

            yield show
    elif progress is False:
        yield None
    else:
        raise AgentDefinitionError(
            f"progress: expected True, False or a function, got {progress!r:.60}",
            name="progress",
            value=type(progress).__name__,
        )
