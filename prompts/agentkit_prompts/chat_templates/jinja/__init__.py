"""Jinja chat templates of models, rendered as in `transformers`, with limits."""
