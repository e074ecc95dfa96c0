"""Providers of models by the prefix of a model name, such as `openai` in `openai:gpt-5-mini`: one row each.

The rows follow the documentation at their addresses, as of November 2026. The steps of a new provider are in
`docs/how-to/change-agentkit.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from agentkit.models.provider import AddressPart, Provider
from agentkit.models.provider_addresses import azure_address, ollama_address
from agentkit.models.provider_settings import (
    CHAT,
    OF_OPENAI,
    OF_OTHERS,
    OPEN_SAMPLING,
    anthropic_budget,
    at_most_one,
    choices,
    efforts,
    google_budget,
    qwen_budget,
    reasoning_budget,
    reasoning_effort,
    temperature_above_zero,
    thinking_effort,
)
from agentkit.models.settings import Fields, set_per_request

_ANY_MODEL = ("",)
_PARALLEL: Fields = {"parallel_tool_calls": set_per_request}
_OPEN: Fields = {**CHAT, **OPEN_SAMPLING}
_GEMINI: Fields = {**CHAT, "effort": "reasoning_effort", "thinking_tokens": google_budget}
_COMPLETION_TOKENS: Fields = {"max_tokens": "max_completion_tokens"}
_FIXED_CHOICES = choices("auto", "none", "required")

_LOCAL = (
    Provider(
        "ollama",
        "http://localhost:11434/v1",
        "https://docs.ollama.com/api/openai-compatibility",
        "ollama",
        hosts=("ollama.com",),
        own_addresses=("OLLAMA_BASE_URL", "OLLAMA_HOST"),
        path="/v1",
        read_address=ollama_address,
        fields={
            **{name: field for name, field in _OPEN.items() if name not in ("top_k", "tool_choice")},
            "effort": efforts("none", "minimal", "low", "medium", "high", "xhigh", "max"),
        },
    ),
    Provider(
        "vllm",
        "http://localhost:8000/v1",
        "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
        "vllm",
        path="/v1",
        needs_key=False,
        fields={
            **_OPEN,
            **_PARALLEL,
            "effort": "reasoning_effort",
            "thinking_tokens": "thinking_token_budget",
        },
    ),
    Provider(
        "llamacpp",
        "http://localhost:8080/v1",
        "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
        "llamacpp",
        own_keys=("LLAMA_API_KEY",),
        path="/v1",
        needs_key=False,
        # The chat template of the model decides about thinking.
        fields={
            **_OPEN,
            **_PARALLEL,
            "effort": efforts(
                none={"chat_template_kwargs": {"enable_thinking": False}},
                **{value: {"chat_template_kwargs": {"reasoning_effort": value}} for value in ("low", "medium", "high")},
            ),
        },
    ),
    Provider(
        "lmstudio",
        "http://localhost:1234/v1",
        "https://lmstudio.ai/docs/developer/openai-compat/chat-completions",
        "lmstudio",
        own_keys=("LM_API_TOKEN",),
        path="/v1",
        needs_key=False,
        fields={**_OPEN, "tool_choice": _FIXED_CHOICES},
    ),
    Provider(
        "litellm",
        "http://localhost:4000",
        "https://docs.litellm.ai/docs/providers/litellm_proxy",
        "litellm",
        own_keys=("LITELLM_PROXY_API_KEY", "LITELLM_API_KEY"),
        own_addresses=("LITELLM_PROXY_API_BASE", "LITELLM_BASE_URL"),
        needs_key=False,
        fields={**OF_OTHERS, "thinking_tokens": anthropic_budget},
        exclusive=("effort", "thinking_tokens"),
    ),
)
"""Servers and proxies that users start themselves."""

_MAKERS = (
    Provider(
        "openai",
        "https://api.openai.com/v1",
        "https://developers.openai.com/api/reference/resources/chat",
        "openai",
        model="OpenAIModel",
        hosts=("api.openai.com", "*.api.openai.com"),
        fields=OF_OPENAI,
        own_templates=_ANY_MODEL,
    ),
    Provider(
        "responses",
        "https://api.openai.com/v1",
        "https://developers.openai.com/api/reference/resources/responses",
        "openai",
        model="OpenAIResponsesModel",
        hosts=("api.openai.com", "*.api.openai.com"),
        own_keys=("OPENAI_API_KEY",),
        own_addresses=("OPENAI_BASE_URL",),
        own_templates=_ANY_MODEL,
    ),
    Provider(
        "anthropic",
        "https://api.anthropic.com",
        "https://platform.claude.com/docs/en/api/messages",
        "anthropic",
        model="AnthropicModel",
        hosts=("*.anthropic.com",),
        own_templates=_ANY_MODEL,
    ),
    Provider(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "https://ai.google.dev/gemini-api/docs/openai",
        "gcp.gemini",
        hosts=("generativelanguage.googleapis.com",),
        own_keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        path="/v1beta/openai",
        fields=_GEMINI,
        exclusive=("effort", "thinking_tokens"),
        required="thought_signature",
        own_templates=_ANY_MODEL,
    ),
    Provider(
        "deepseek",
        "https://api.deepseek.com",
        "https://api-docs.deepseek.com/api/create-chat-completion",
        "deepseek",
        hosts=("*.deepseek.com",),
        fields={**CHAT, "effort": thinking_effort("minimal", "low", "medium", "high", "xhigh", "max")},
        output_modes=("tool", "prompted"),
        required="reasoning_content",
        reads_media=False,
        own_templates=_ANY_MODEL,
    ),
    Provider(
        "mistral",
        "https://api.mistral.ai/v1",
        "https://docs.mistral.ai/api/endpoint/chat",
        "mistral_ai",
        hosts=("*.mistral.ai",),
        path="/v1",
        fields={
            **CHAT,
            **_PARALLEL,
            "seed": "random_seed",
            "effort": efforts("none", "minimal", "low", "medium", "high", "xhigh"),
            "prompt_cache_key": "prompt_cache_key",
        },
        required="short_call_ids",
        requests_usage=False,
        own_templates=_ANY_MODEL,
    ),
    Provider(
        "xai",
        "https://api.x.ai/v1",
        "https://docs.x.ai/developers/rest-api-reference/inference/chat",
        "x_ai",
        hosts=("*.x.ai",),
        path="/v1",
        fields={
            **CHAT,
            **_PARALLEL,
            **_COMPLETION_TOKENS,
            "seed": "seed",
            "effort": efforts("none", "low", "medium", "high", "xhigh"),
        },
        own_templates=_ANY_MODEL,
    ),
    Provider(
        "moonshot",
        "https://api.moonshot.ai/v1",
        "https://platform.kimi.ai/docs/api/chat",
        "moonshot_ai",
        hosts=("*.moonshot.ai", "*.moonshot.cn"),
        path="/v1",
        fields={
            **CHAT,
            **_COMPLETION_TOKENS,
            "tool_choice": choices("auto", "none"),
            "effort": thinking_effort("low", "high", "max"),
            "prompt_cache_key": "prompt_cache_key",
        },
        output_modes=("tool", "prompted"),
        required="reasoning_content",
    ),
    Provider(
        "zai",
        "https://api.z.ai/api/paas/v4",
        "https://docs.z.ai/api-reference/llm/chat-completion",
        "zai",
        hosts=("*.z.ai", "*.bigmodel.cn"),
        path="/api/paas/v4",
        fields={
            **CHAT,
            "stop": at_most_one,
            "tool_choice": choices("auto"),
            "effort": thinking_effort("low", "medium", "high", "max"),
        },
        output_modes=("tool", "prompted"),
    ),
    Provider(
        "dashscope",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "https://www.alibabacloud.com/help/en/model-studio/qwen-api-via-openai-chat-completions",
        "dashscope",
        hosts=("dashscope*.aliyuncs.com",),
        path="/compatible-mode/v1",
        fields={
            **_OPEN,
            **_PARALLEL,
            "tool_choice": choices("auto", "none", names=True),
            "effort": efforts(none={"enable_thinking": False}),
            "thinking_tokens": qwen_budget,
        },
        exclusive=("effort", "thinking_tokens"),
        output_modes=("tool", "native", "prompted"),
    ),
    Provider(
        "minimax",
        "https://api.minimax.io/v1",
        "https://platform.minimax.io/docs/api-reference/text-openai-api",
        "minimax",
        hosts=("*.minimax.io", "*.minimaxi.com"),
        path="/v1",
        fields={
            "temperature": temperature_above_zero,
            "top_p": "top_p",
            **_COMPLETION_TOKENS,
            "effort": efforts(none={"thinking": {"type": "disabled"}}),
        },
        # Otherwise the thinking is a part of the text.
        body={"reasoning_split": True},
        output_modes=("tool", "prompted"),
    ),
)
"""Makers of models, which serve their own models."""

_HOSTS = (
    Provider(
        "azure",
        "",
        "https://learn.microsoft.com/azure/foundry/openai/api-version-lifecycle",
        "azure.ai.openai",
        hosts=("*.openai.azure.com", "*.services.ai.azure.com", "*.cognitiveservices.azure.com"),
        own_keys=("AZURE_OPENAI_API_KEY",),
        own_addresses=("AZURE_OPENAI_ENDPOINT",),
        path="/openai/v1",
        read_address=azure_address,
        fields=OF_OPENAI,
        own_templates=_ANY_MODEL,
    ),
    Provider(
        "bedrock",
        "https://bedrock-runtime.{region}.amazonaws.com/openai/v1",
        "https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html",
        "aws.bedrock",
        hosts=("bedrock-runtime*.amazonaws.com", "bedrock-mantle.*.api.aws"),
        own_keys=("AWS_BEARER_TOKEN_BEDROCK",),
        parts=(AddressPart("region", ("AWS_REGION", "AWS_DEFAULT_REGION")),),
        path="/openai/v1",
        fields={**CHAT, **_COMPLETION_TOKENS, "effort": "reasoning_effort", "service_tier": "service_tier"},
    ),
    Provider(
        "vertex",
        "https://{location}-aiplatform.googleapis.com/v1/projects/{project}/locations/{location}/endpoints/openapi",
        "https://docs.cloud.google.com/vertex-ai/generative-ai/docs/start/openai",
        "gcp.vertex_ai",
        hosts=("aiplatform.googleapis.com", "*-aiplatform.googleapis.com"),
        own_keys=("GOOGLE_OAUTH_ACCESS_TOKEN",),
        parts=(
            AddressPart("project", ("GOOGLE_CLOUD_PROJECT",)),
            AddressPart("location", ("GOOGLE_CLOUD_LOCATION",), "global"),
        ),
        fields={**_GEMINI, "seed": "seed"},
        exclusive=("effort", "thinking_tokens"),
        required="thought_signature",
        own_templates=("google/", "gemini-", "anthropic/", "claude-"),
    ),
    Provider(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "https://openrouter.ai/docs/api/reference/parameters",
        "openrouter",
        hosts=("openrouter.ai", "*.openrouter.ai"),
        path="/api/v1",
        fields={
            **_OPEN,
            **_PARALLEL,
            "effort": reasoning_effort,
            "thinking_tokens": reasoning_budget,
            "service_tier": "service_tier",
        },
        exclusive=("effort", "thinking_tokens"),
    ),
    Provider(
        "groq",
        "https://api.groq.com/openai/v1",
        "https://console.groq.com/docs/api-reference",
        "groq",
        hosts=("*.groq.com",),
        path="/openai/v1",
        fields={
            **CHAT,
            **_PARALLEL,
            **_COMPLETION_TOKENS,
            "seed": "seed",
            "effort": efforts("none", "low", "medium", "high"),
            "service_tier": "service_tier",
        },
        # Few models accept a schema.
        output_modes=("tool", "native", "prompted"),
    ),
    Provider(
        "together",
        "https://api.together.xyz/v1",
        "https://docs.together.ai/reference/chat-completions",
        "together",
        hosts=("*.together.xyz", "*.together.ai"),
        path="/v1",
        fields={
            **_OPEN,
            "effort": efforts("low", "medium", "high", none={"reasoning": {"enabled": False}}),
        },
        output_modes=("tool", "native", "prompted"),
    ),
    Provider(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        "https://docs.fireworks.ai/api-reference/post-chatcompletions",
        "fireworks",
        hosts=("*.fireworks.ai",),
        path="/inference/v1",
        fields={
            **_OPEN,
            **_PARALLEL,
            "effort": "reasoning_effort",
            "prompt_cache_key": "prompt_cache_key",
            "service_tier": "service_tier",
        },
    ),
    Provider(
        "cerebras",
        "https://api.cerebras.ai/v1",
        "https://inference-docs.cerebras.ai/api-reference/chat-completions",
        "cerebras",
        hosts=("*.cerebras.ai",),
        path="/v1",
        fields={
            **CHAT,
            **_PARALLEL,
            **_COMPLETION_TOKENS,
            "seed": "seed",
            "effort": efforts("none", "low", "medium", "high"),
            "service_tier": "service_tier",
        },
    ),
    Provider(
        "huggingface",
        "https://router.huggingface.co/v1",
        "https://huggingface.co/docs/inference-providers/tasks/chat-completion",
        "huggingface",
        hosts=("router.huggingface.co",),
        own_keys=("HF_TOKEN",),
        path="/v1",
        fields={**CHAT, "seed": "seed", "effort": "reasoning_effort"},
        output_modes=("tool", "native", "prompted"),
    ),
)
"""Hosts of models of many makers."""

PROVIDERS: Mapping[str, Provider] = {
    **{row.name: row for row in (*_MAKERS, *_HOSTS, *_LOCAL)},
    "offline": Provider("offline", "", "", "", model="OfflineModel", needs_key=False),
}
"""Providers by the prefix of a model name before the colon."""

OTHER_HOSTS: Mapping[str, str] = {
    "*.services.ai.azure.com": "azure.ai.inference",
    "*.perplexity.ai": "perplexity",
    "*.cohere.com": "cohere",
    "*.cohere.ai": "cohere",
}
"""Names in spans by hosts that no row names, or names differently."""


@lru_cache(maxsize=256)
def provider_at(host: str) -> Provider | None:
    """Return the provider of a host, which can contain a port; None for a custom server."""
    return next((row for row in PROVIDERS.values() if row.has_host(host)), None)
