"""Input of prompts: the context, messages, content parts, documents, facts and examples."""
