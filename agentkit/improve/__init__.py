"""Improvement of agents: better texts for named parts, and examples from good runs."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.improve.example_choice": "choose_examples split_rows",
        "agentkit.improve.improve_errors": "FilesChanged ImproveError",
        "agentkit.improve.optimisation": "Optimisation",
        "agentkit.improve.optimiser": "optimise optimise_sync",
        "agentkit.improve.prompt_search": "OptimiseBudget",
        "agentkit.improve.text_parts": "part_texts",
    },
)
