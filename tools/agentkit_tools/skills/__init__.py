"""Skills: folders with instructions that a model loads when it needs them."""
