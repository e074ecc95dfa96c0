"""Meta templates: the format of evaluation prompts for one model."""
