"""Models by name: `openai:gpt-5-mini`, `anthropic:claude-opus-4-8`, `http://localhost:8000/v1#qwen3`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentkit.errors import AgentDefinitionError
from agentkit.models.model import Model
from agentkit.models.providers import PROVIDERS
from agentkit.models.settings import NO_SETTINGS, ModelSettings, checked_settings, with_settings
from agentkit_prompts.names import nearest

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.guard.control_tokens import Policy
    from agentkit_prompts.chat_templates.template_finder import GivenTemplate

__all__ = ["changed_model", "is_address", "is_full_name", "model"]

_SCHEMES = ("http://", "https://")


def is_address(name: str) -> bool:
    """Tell whether a name is the address of a server, with the model behind a `#`."""
    return name[:8].lower().startswith(_SCHEMES)


def is_full_name(name: str) -> bool:
    """Tell whether a name says whom to ask: by its provider, or by an address."""
    provider, colon, _ = name.partition(":")
    return is_address(name) or (bool(colon) and provider in PROVIDERS)


def model(
    name: str,
    *,
    settings: ModelSettings = NO_SETTINGS,
    chat_template: GivenTemplate | None = None,
    session_len: int | None = None,
    control_tokens: Policy | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
) -> Model:
    """Return the model of a name.

    Args:
        name: PROVIDER:MODEL, where the provider is `openai`, `responses` (the Responses API), `anthropic`, `gemini` or
            `deepseek`; the address of a server that speaks chat completions, with the model behind a `#`; or `offline`.
        settings: How it is to answer.
        chat_template: For a server that only completes text, or `offline` in place of one: the registered name of a
            chat template or of a model that has one, a file, or a template. The whole prompt is written with it.
        session_len: With a chat template, the tokens that the server has for prompt and reply together.
        control_tokens: With a chat template, what happens to untrusted text that forms its control tokens; `escape`
            when not given.
        template_kwargs: With a chat template, what else it reads, such as `enable_thinking`.

    Raises:
        AgentDefinitionError: There is no such provider, the name has none, or the model cannot do one of the settings.
        ChatTemplateError: There is no such chat template.
        ModelRequestError: The address is invalid.
    """
    if not isinstance(name, str):
        raise AgentDefinitionError(
            f"model: expected a name such as 'openai:gpt-5-mini', got {name!r:.60}",
            name="model",
            value=type(name).__name__,
        )
    made = _made(name, chat_template, session_len, control_tokens, template_kwargs)
    given = checked_settings(settings)
    return made if given is NO_SETTINGS else with_settings(made, given)


def _made(
    name: str,
    chat_template: GivenTemplate | None,
    session_len: int | None,
    control_tokens: Policy | None,
    template_kwargs: Mapping[str, Any] | None,
) -> Model:
    given = {"session_len": session_len, "control_tokens": control_tokens, "template_kwargs": template_kwargs or None}
    if chat_template is None and (named := [what for what, value in given.items() if value is not None]):
        what = named[0]
        advice = ", or limit the prompt of the agent by its budget" if what == "session_len" else ""
        raise AgentDefinitionError(
            f"model {_shown(name)!r:.80}: {what} needs a chat_template: give that too{advice}",
            name="chat_template",
            value=what,
        )
    if chat_template is not None and not is_address(name) and name != "offline":
        raise AgentDefinitionError(
            f"model {_shown(name)!r:.80}: a chat template is for a server that completes text, named by its address, "
            "such as http://localhost:8000/v1#qwen3: leave the template out, or give the address",
            name="chat_template",
        )
    if is_address(name):
        url, mark, served = name.rpartition("#")
        if not mark or not served.strip():
            raise AgentDefinitionError(
                "model: an address needs the name of the model after it, such as http://localhost:8000/v1#qwen3",
                name="address",
            )
        if chat_template is not None:
            from agentkit.models.completion.completion_model import CompletionModel

            return CompletionModel(
                served.strip(),
                chat_template,
                base_url=url,
                session_len=session_len,
                control_tokens=control_tokens or "escape",
                template_kwargs=template_kwargs,
            )
        return _kind("openai")(served.strip(), base_url=url)
    provider, colon, rest = (part.strip() for part in name.partition(":"))
    if provider == "offline" and not rest:
        return _kind(provider)(chat_template, **given)
    if colon and provider not in PROVIDERS:
        shown = _shown(name)
        raise AgentDefinitionError(
            f"model {shown!r:.80}: there is no provider {provider!r:.40}{nearest(provider, PROVIDERS)}",
            name="provider",
            value=provider,
        )
    if colon and "//" in rest:  # neither asked for nor shown: a password may stand in it
        raise AgentDefinitionError(
            f"model {provider}:...: expected the name of a model after the colon, not an address; give that "
            "alone, such as http://localhost:8000/v1#qwen3",
            name="model",
        )
    if colon and rest and provider != "offline":
        return _kind(provider)(rest)
    if colon and not rest:
        raise AgentDefinitionError(
            f"model {name!r:.80}: the name of the model after the colon is missing", name="model", value=name
        )
    name = _shown(name)
    raise AgentDefinitionError(
        f"model {name!r:.80}: expected a model, such as OpenAIModel({name!r:.80}), its name with the provider, such as "
        f'"openai:{name:.80}", or an address, such as "http://localhost:8000/v1#{name:.80}"'
        f"; providers: {', '.join(PROVIDERS)}",
        name="model",
        value=name,
    )


def _shown(name: str) -> str:
    """Return a name as errors show it: of what may be an address its scheme only: the rest may be a secret."""
    scheme, mark, _ = name.partition("//")
    return f"{scheme[-40:]}//..." if mark else name.rpartition("@")[2]


def _kind(provider: str) -> Callable[..., Model]:
    kind: Callable[..., Model] = getattr(import_module("agentkit.models"), PROVIDERS[provider].model)
    return kind


def changed_model(before: Model, changes: Mapping[str, Any]) -> Model:
    """Return the model of a run that is given another one, or other settings.

    Raises:
        AgentDefinitionError: There is no such model, or it cannot do one of the settings.
    """
    found = changes.get("model", before)
    found = model(found) if isinstance(found, str) else found
    return with_settings(found, changes["settings"]) if "settings" in changes else found
