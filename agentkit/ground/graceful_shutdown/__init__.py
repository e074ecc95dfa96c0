"""How a server ends: what becomes of requests that go on."""
