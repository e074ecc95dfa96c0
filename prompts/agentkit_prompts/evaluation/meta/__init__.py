"""Meta templates: how one model hears an evaluation prompt."""
