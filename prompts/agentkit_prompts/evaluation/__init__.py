"""Evaluation prompts from the rows of a dataset, with worked examples; public as `agentkit.prompts.evaluation`."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit_prompts.errors": "InContextError InContextWarning",
        "agentkit_prompts.evaluation.columns": "safe_format",
        "agentkit_prompts.evaluation.config.config_file": "load_config load_datasets",
        "agentkit_prompts.evaluation.config.config_names": (
            "ChatInferencer FixKRetriever GenInferencer LLInferencer MultiTurnGenInferencer "
            "ParallelChatInferencer ParallelGenInferencer PPLInferencer RandomRetriever SlidingWindowRetriever "
            "TopkRetriever ZeroRetriever"
        ),
        "agentkit_prompts.evaluation.dataset_reader": "DatasetReader",
        "agentkit_prompts.evaluation.in_context": "InContext RowPrompt",
        "agentkit_prompts.evaluation.inferencer": "Inferencer",
        "agentkit_prompts.evaluation.meta.api_meta_template": "ApiMetaTemplate",
        "agentkit_prompts.evaluation.meta.chat_messages": "chat_messages to_messages",
        "agentkit_prompts.evaluation.meta.meta_template": "MetaTemplate",
        "agentkit_prompts.evaluation.multi_turn": "MultiTurnPromptTemplate",
        "agentkit_prompts.evaluation.multimodal": "MMPromptTemplate",
        "agentkit_prompts.evaluation.prompt_list": "PromptList",
        "agentkit_prompts.evaluation.prompt_template": "PromptTemplate",
        "agentkit_prompts.evaluation.raw_template": "RawPromptTemplate",
        "agentkit_prompts.evaluation.retrievers": "BM25Selector RandomSelector WindowSelector",
    },
)
