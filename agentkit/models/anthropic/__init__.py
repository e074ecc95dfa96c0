"""Claude through the official SDK: requests, replies, what each model can do."""
