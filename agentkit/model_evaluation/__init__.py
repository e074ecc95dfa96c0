"""Evaluations that run: rows asked of a model, answers kept and scored. Import it as `agentkit.prompts.evaluation`."""
