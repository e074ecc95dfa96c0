"""Evaluations of models: requests for rows, stored answers and scores. Import it as `agentkit.prompts.evaluation`."""
