"""A request to a model as a command for a shell."""

from __future__ import annotations

import json
import re
import shlex

from agentkit.errors import AgentError
from agentkit.inspector.played_prompt import PlayedPrompt
from agentkit.inspector.redacted_layers import sent_composition
from agentkit.models.abilities import model_path
from agentkit.models.http.endpoint import EndpointModel, model_secrets
from agentkit_prompts.credentials import masked

_NO_NAME = re.compile(r"[^A-Za-z0-9]")
"""Characters that the name of an environment variable cannot contain."""


def curl_command(prompt: PlayedPrompt) -> str:
    """Return the request of a prompt as a curl command, with model and settings.

    The key and the values of headers are environment variables, and other secrets are `***`.

    Raises:
        AgentError: The model has no HTTP endpoint.
        ModelRequestError: The model does not accept the composition.
    """
    model = model_path(prompt.model)[-1]
    if not isinstance(model, EndpointModel):
        raise AgentError(f"the model {model.name!r} has no HTTP endpoint, so that curl cannot send its request")
    sent, _ = sent_composition(prompt.model, prompt.composition)
    body = json.dumps(model.request_body(sent), separators=(",", ":"), allow_nan=False)
    lines = [f"curl {shlex.quote(model.address)}", "-H 'content-type: application/json'"]
    for name, value in model.sdk.headers.items():
        prefix, key, _ = value.partition("KEY")
        lines.append(f"-H {_header(name, prefix, model.provider.key_variable if key else '')}")
    for name in model.settings.headers:
        lines.append(f"-H {_header(name, '', _NO_NAME.sub('_', name).upper())}")
    # JSON in ASCII has no line breaks and no control characters, which a terminal would execute when text is pasted.
    lines.append(f"--data-raw {shlex.quote(masked(body, model_secrets(model)))}")
    return " \\\n  ".join(lines)


def _header(name: str, text: str, variable: str) -> str:
    """Return a quoted header, which ends with an environment variable if `variable` is its name."""
    quoted = shlex.quote(f"{name}: {text}")
    if variable:
        return f'{quoted}"${variable}"'
    return quoted
