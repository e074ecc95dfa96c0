"""Meta templates: how an evaluation prompt is written for one model."""
