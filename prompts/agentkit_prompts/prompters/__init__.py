"""Prompters: quick prompts from an instruction with slots, for hosted and for local models."""
