"""The Jinja chat templates that models ship, rendered as `transformers` renders them, with limits."""
