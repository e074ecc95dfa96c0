"""Models by name: `openai:gpt-5-mini`, `anthropic:claude-opus-4-8`, `http://localhost:8000/v1#qwen3`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from agentkit.errors import AgentDefinitionError
from agentkit.models.model import Model
from agentkit.models.provider_addresses import is_address
from agentkit.models.providers import PROVIDERS
from agentkit.models.settings import with_settings
from agentkit_prompts.hints import with_option_hints
from agentkit_prompts.names import nearest

if TYPE_CHECKING:
    from agentkit.models.http.endpoint_options import EndpointOptions
    from agentkit_prompts.chat_templates.guard.control_tokens import Policy
    from agentkit_prompts.chat_templates.template_finder import GivenTemplate

_HOST = re.compile(r"(localhost|\d+(\.\d+){3}|\[[\da-fA-F:]+\])(:\d+)?(/|\Z)")
"""Start of an address without a scheme: a host of this machine, or an IP address."""
_FAMILIES = {
    "claude": "anthropic",
    "deepseek": "deepseek",
    "gemini": "gemini",
    "glm": "zai",
    "grok": "xai",
    "kimi": "moonshot",
    "minimax": "minimax",
    **dict.fromkeys(("codestral", "devstral", "magistral", "ministral", "mistral"), "mistral"),
}
"""Start of the name of a model, before the first hyphen -> its provider; other names are examples of `openai`."""
_OTHER_NAMES = {
    **dict.fromkeys(("google", "google-gla", "google_genai", "googleai"), "gemini"),
    **dict.fromkeys(("google-cloud", "google-vertex", "google_vertexai", "vertex_ai", "vertexai"), "vertex"),
    **dict.fromkeys(("alibaba", "qwen"), "dashscope"),
    **dict.fromkeys(("aws", "bedrock_converse", "bedrock-mantle"), "bedrock"),
    **dict.fromkeys(("azure_openai", "azure-openai", "azure_ai"), "azure"),
    **dict.fromkeys(("grok", "x-ai", "x_ai"), "xai"),
    **dict.fromkeys(("hf", "huggingface_hub"), "huggingface"),
    **dict.fromkeys(("kimi", "moonshotai"), "moonshot"),
    **dict.fromkeys(("glm", "zhipu", "zhipuai"), "zai"),
    "claude": "anthropic",
    "hosted_vllm": "vllm",
    "litellm_proxy": "litellm",
    "llama.cpp": "llamacpp",
    "lm_studio": "lmstudio",
    "openai-chat": "openai",
    "openai-responses": "responses",
}
"""Names of providers in other libraries."""


def is_full_name(name: str) -> bool:
    """True if a name contains its provider or the address of a server, also an address that lacks its scheme."""
    provider, colon, _ = name.partition(":")
    return is_address(name) or (bool(colon) and provider in PROVIDERS) or _lacks_scheme(name)


def _lacks_scheme(name: str) -> bool:
    # The name of a model contains no `#`.
    return "#" in name or _HOST.match(name) is not None


@with_option_hints
def model(
    name: str,
    *,
    client: Any = None,
    chat_template: GivenTemplate | None = None,
    session_len: int | None = None,
    control_tokens: Policy | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[EndpointOptions],
) -> Model:
    """Return the model of a name.

    Args:
        name: PROVIDER:MODEL with a provider such as `openai`, `anthropic`, `groq` or `ollama`, which `agentkit models`
            lists; the address of a chat-completions server followed by `#` and the model; or `offline`.
        client: Custom client of the SDK of the model.
        chat_template: Chat template that writes the whole prompt, for a server that only completes text or for
            `offline`: a registered name, the name of a model with a registered template, a file, or a template.
        session_len: Maximum tokens of prompt and reply together; requires a chat template.
        control_tokens: Handling of untrusted text that forms control tokens, `escape` by default; requires a chat
            template.
        template_kwargs: Other variables of the chat template, such as `enable_thinking`.
        **options: Settings, key, base URL and other options of the model; see `EndpointOptions`.

    Raises:
        AgentDefinitionError: The provider is missing or unknown, or the model does not support a setting or an option.
        UnknownOption: Names all unknown options.
        ChatTemplateError: The chat template is unknown.
        ModelRequestError: The address is invalid.
    """
    if not isinstance(name, str):
        raise AgentDefinitionError(
            f"model: expected a name such as 'openai:gpt-5-mini', got {name!r:.60}",
            name="model",
            value=type(name).__name__,
        )
    of_template = {
        "session_len": session_len,
        "control_tokens": control_tokens,
        "template_kwargs": template_kwargs or None,
    }
    _check_template(name, chat_template, of_template)
    of_endpoint: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if client is not None:
        of_endpoint["client"] = client
    if of_endpoint:
        _check_options(of_endpoint)
    return ModelName.parse(name).build(chat_template, of_template, of_endpoint)


class ModelName(NamedTuple):
    """The parts of the name of a model."""

    provider: str
    """A provider of `PROVIDERS`."""
    model: str = ""
    """The name of the model at the provider; empty for `offline`."""
    address: str | None = None
    """The address of the server; None for the endpoint of the provider."""

    @classmethod
    def parse(cls, name: str) -> ModelName:
        """Parse a name.

        Raises:
            AgentDefinitionError: The provider is missing or unknown, or the model is missing.
        """
        if is_address(name):
            return cls._parse_address(name)
        provider, colon, rest = (part.strip() for part in name.partition(":"))
        if provider == "offline" and not rest:
            return cls(provider)
        if provider not in PROVIDERS and _lacks_scheme(name):
            # The address is not shown, because it may contain a password.
            raise AgentDefinitionError(
                "model: an address starts with http:// or https://, such as http://localhost:8000/v1#qwen3",
                name="address",
            )
        if not colon:
            raise _no_provider(name)
        if provider not in PROVIDERS:
            raise AgentDefinitionError(
                f"model {_shown(name)!r:.80}: {unknown_provider(provider)}", name="provider", value=_shown(provider)
            )
        # The address is not shown, because it may contain a password.
        if "//" in rest:
            raise AgentDefinitionError(
                f"model {provider}:...: expected the name of a model after the colon, not an address; pass the "
                "address without a provider, such as http://localhost:8000/v1#qwen3",
                name="model",
            )
        if not rest:
            raise AgentDefinitionError(
                f"model {name!r:.80}: the name of the model after the colon is missing", name="model", value=name
            )
        if provider == "offline":
            raise _no_provider(name)
        return cls(provider, rest)

    @classmethod
    def _parse_address(cls, name: str) -> ModelName:
        # The last `#` separates: an address may contain `#`, the name of a model may not.
        address, mark, served = name.rpartition("#")
        if not mark or not served.strip():
            raise AgentDefinitionError(
                "model: an address needs the name of the model after it, such as http://localhost:8000/v1#qwen3",
                name="address",
            )
        return cls("openai", served.strip(), address)

    def build(
        self, chat_template: GivenTemplate | None, of_template: Mapping[str, Any], of_endpoint: Mapping[str, Any]
    ) -> Model:
        """Return the model of this name.

        Args:
            chat_template: The template that writes the prompt; None for a model that receives messages.
            of_template: Options of a `CompletionModel` about its chat template.
            of_endpoint: Options of a model with an endpoint.
        """
        if self.provider == "offline":
            return _offline_model(chat_template, of_template, of_endpoint)
        if self.address is not None:
            if of_endpoint.get("base_url") is not None:
                raise AgentDefinitionError(
                    "model: the name is an address, so base_url= is a second address: remove one of them",
                    name="base_url",
                )
            of_endpoint = {**of_endpoint, "base_url": self.address}
        if chat_template is None:
            return _model_of(self.provider, self.model, of_endpoint)
        # Chat templates need Jinja, which the other models do not import.
        from agentkit.models.completion.completion_model import CompletionModel

        written: dict[str, Any] = {**of_template, "control_tokens": of_template["control_tokens"] or "escape"}
        return CompletionModel(self.model, chat_template, **written, **of_endpoint)


def unknown_provider(provider: str) -> str:
    """Return the text of the problem that a provider is unknown, with a remedy."""
    advice = nearest(provider.lower(), PROVIDERS)
    if provider.lower() in _OTHER_NAMES:
        advice = f"; use {_OTHER_NAMES[provider.lower()]!r}"
    return f"unknown provider {_shown(provider)!r:.40}{advice}"


def _no_provider(name: str) -> AgentDefinitionError:
    name = _shown(name)
    provider, slash, rest = name.partition("/")
    if slash and provider in PROVIDERS:
        return AgentDefinitionError(
            f"model {name!r:.80}: expected a colon after the provider, such as {f'{provider}:{rest}'!r:.80}",
            name="model",
            value=name,
        )
    provider = _FAMILIES.get(name.partition("-")[0].lower(), "openai")
    return AgentDefinitionError(
        f'model {name!r:.80}: expected a name with its provider, such as "{provider}:{name:.80}", or an address, such '
        f'as "http://localhost:8000/v1#{name:.80}"; providers: {", ".join(PROVIDERS)}',
        name="model",
        value=name,
    )


def _check_template(name: str, chat_template: GivenTemplate | None, options: Mapping[str, Any]) -> None:
    """Refuse options that need a chat template, and a chat template for a model that receives messages."""
    if chat_template is not None:
        if is_address(name) or name == "offline":
            return
        raise AgentDefinitionError(
            f"model {_shown(name)!r:.80}: a chat template needs a server that completes text, named by its address, "
            "such as http://localhost:8000/v1#qwen3: remove the template, or pass the address",
            name="chat_template",
        )
    for option, value in options.items():
        if value is None:
            continue
        advice = ""
        if option == "session_len":
            advice = ", or limit the prompt of the agent by its budget"
        raise AgentDefinitionError(
            f"model {_shown(name)!r:.80}: {option} needs a chat_template: pass chat_template too{advice}",
            name="chat_template",
            value=option,
        )


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse unknown options."""
    from agentkit.ground.unknown_options import check_names
    from agentkit.models.http.endpoint_options import OF_SETTINGS, EndpointOptions

    check_names("model", options, (*EndpointOptions.__annotations__, "client"), OF_SETTINGS)


def _shown(name: str) -> str:
    """Return a name for an error message: only scheme and model of an address, which may contain a secret."""
    scheme, mark, rest = name.partition("//")
    if not mark:
        return name.rpartition("@")[2]
    start = f"{scheme[-40:]}//..."
    _, separator, served = rest.rpartition("#")
    # Without a model, a password can contain the last `#`.
    if scheme.lower() not in ("http:", "https:") or not separator or "@" in served:
        return start
    return f"{start}#{served}"


def _offline_model(
    chat_template: GivenTemplate | None, of_template: Mapping[str, Any], of_endpoint: Mapping[str, Any]
) -> Model:
    from agentkit.models.offline.offline_model import OfflineModel

    settings = of_endpoint.get("settings")
    names = [name for name in of_endpoint if name != "settings"]
    if names:
        raise AgentDefinitionError(
            f"model 'offline': {', '.join(names)}: the offline model sends nothing: remove the option, or name another "
            "model",
            name=names[0],
        )
    offline = OfflineModel(chat_template, **of_template)
    if settings is None:
        return offline
    return with_settings(offline, settings)


def _model_of(provider: str, name: str, options: Mapping[str, Any]) -> Model:
    """Return the model of a provider: an object of its class, or a chat-completions model that its row describes."""
    row = PROVIDERS[provider]
    if row.model:
        model_class: Callable[..., Model] = getattr(import_module("agentkit.models"), row.model)
        return model_class(name, **options)
    from agentkit.models.openai.compatible import CompatibleModel

    return CompatibleModel(row, name, **options)


def changed_model(before: Model, changes: Mapping[str, Any]) -> Model:
    """Return the model of a run after the changes `model` and `settings`.

    Raises:
        AgentDefinitionError: The model is unknown, or does not support a setting.
    """
    new_model = resolved_model(changes.get("model", before))
    if "settings" in changes:
        return with_settings(new_model, changes["settings"])
    return new_model


def resolved_model(name: Model | str) -> Model:
    """Return the model of a name; a model is returned unchanged.

    Raises:
        AgentDefinitionError: The name of the model is unknown.
    """
    if isinstance(name, str):
        return model(name)
    return name
