"""Claude models: requests, replies and the rules of each model."""
