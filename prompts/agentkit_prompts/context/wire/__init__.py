"""Messages on the wire: the forms of OpenAI chat, OpenAI Responses and Anthropic, read and written."""
