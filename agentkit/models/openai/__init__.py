"""Chat completions and Responses through the official SDK, and endpoints that speak as they do."""
