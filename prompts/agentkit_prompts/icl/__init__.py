"""In-context learning: evaluation prompts made of a dataset's rows, a template, and worked examples."""
