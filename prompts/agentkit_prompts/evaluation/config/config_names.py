"""Names of the classes of suites, for the key `type` of custom configurations."""

from typing import Final

ZeroRetriever: Final = "ZeroRetriever"
FixKRetriever: Final = "FixKRetriever"
RandomRetriever: Final = "RandomRetriever"
SlidingWindowRetriever: Final = "SlidingWindowRetriever"
TopkRetriever: Final = "TopkRetriever"
GenInferencer: Final = "GenInferencer"
ChatInferencer: Final = "ChatInferencer"
MultiTurnGenInferencer: Final = "MultiTurnGenInferencer"
PPLInferencer: Final = "PPLInferencer"
LLInferencer: Final = "LLInferencer"
ParallelGenInferencer: Final = "ParallelGenInferencer"
ParallelChatInferencer: Final = "ParallelChatInferencer"
