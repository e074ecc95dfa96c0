"""`load_agent`: loads an agent from its file or from a Python module."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from agentkit.agent.agent import Agent
from agentkit.agent_files.agent_file import (
    AgentFile,
    AgentTool,
    MCPTool,
    MemoryPart,
    ModelPart,
    is_import_path,
)
from agentkit.agent_files.agent_file_error import AgentFileError
from agentkit.agent_files.agent_model import (
    ERRORS,
    agent_model,
    check_template_allowed,
    invalid_argument,
    setting_places,
)
from agentkit.agent_files.agent_parts import budget_of, compaction_of, expanded, guard_of, price_of, recall_options_of
from agentkit.agent_files.file_texts import described, with_examples
from agentkit.agent_files.import_path import imported
from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.agent_files.module_agent import loaded_module_agent
from agentkit.agent_files.shared_memories import SharedMemories
from agentkit.agent_files.yaml_lines import Place, Problem, YamlFile, read_yaml
from agentkit.errors import AgentDefinitionError
from agentkit.models.model import Model
from agentkit.models.redacting.redacting_model import RedactingModel
from agentkit.models.settings import ModelSettings
from agentkit.run.parts.limits import Limits
from agentkit.run.parts.recaller import check_shown
from agentkit_memory import Scope
from agentkit_prompts.chat_templates.registry import CHAT_TEMPLATES
from agentkit_prompts.chat_templates.template_finder import GivenTemplate
from agentkit_prompts.context.prompt_context import Example
from agentkit_prompts.errors import PromptFilesError, check_types
from agentkit_prompts.prompt_files.prompt_folder import PromptFolder
from agentkit_prompts.tokens.counter import TokenCounter
from agentkit_prompts.tokens.tokenizer_counters import TiktokenCounter, TokenizersCounter
from agentkit_prompts.tree.layers import Layers
from agentkit_tools import ClearResults, DynamicToolset, MCPToolset, SkillFolder, todo_tools
from agentkit_tools.schemas.foreign_shapes import library_of

if TYPE_CHECKING:
    from agentkit_memory import Memory

_loading: ContextVar[tuple[Path, ...]] = ContextVar("agentkit_loading", default=())
"""Files of the nested calls of `load_agent`, the outermost file first."""


def load_agent(
    source: str | os.PathLike[str],
    *,
    home: str | os.PathLike[str] | None = None,
    model: Model | str | None = None,
    chat_template: GivenTemplate | None = None,
    tenant: str | None = None,
    memories: SharedMemories | None = None,
) -> LoadedAgent:
    """Load the agent of an agent file or of a Python module.

    A file is code: it imports Python by name and may start programs. Load only trusted files.

    Args:
        source: Path of an `agent.yaml`; or `module:agent` or `./file.py:agent`, an `Agent` or a function that returns
            an `Agent`.
        home: The folder of the memory, overriding the folder of the file. An agent file without memory, or with a
            memory in a database server, ignores it.
        model: The model, overriding the file. A name is used with the settings, the chat template and the session_len
            of the file, which the model must support. A `Model` is used unchanged.
        chat_template: The chat template, overriding the file, for a model with an address or for `offline`.
        tenant: The tenant whose memory the agent reads. Default: the tenant of the memory of a module, or `local`.
        memories: Opener and owner of the memories of agent files; by default, the agent owns its memory.

    Raises:
        AgentFileError: The file is invalid. The error lists all problems with their lines.
        AgentDefinitionError: The module or name is unknown, or its value is not an agent.
    """
    check_types(
        AgentDefinitionError,
        "load_agent",
        source=(source, (str, os.PathLike), "a path, or module:agent"),
        home=(home, (str, os.PathLike, NoneType), "a path, or None"),
        tenant=(tenant, (str, NoneType), "the name of a tenant, or None"),
        memories=(memories, (SharedMemories, NoneType), "SharedMemories, or None"),
    )
    text = os.fspath(source)
    if is_import_path(text) and not Path(text).exists():
        return loaded_module_agent(text, model, chat_template, tenant)
    path = Path(text)
    try:
        files = (*_loading.get(), Path(os.path.realpath(path)))
    except ValueError as error:
        raise AgentDefinitionError(f"{text!r:.80}: no file can have this name: {error}", name="source") from None
    if files[-1] in files[:-1]:
        names = " -> ".join(file.name for file in files)
        raise AgentDefinitionError(f"the agent would be a tool of itself: {names}", name="tools", value=names)
    token = _loading.set(files)
    try:
        return _AgentFileLoader(path, home, model, chat_template, tenant, memories).loaded()
    finally:
        _loading.reset(token)


class _AgentFileLoader:
    """Loads the agent of one file, and collects the problems of the file."""

    def __init__(
        self,
        path: Path,
        home: str | os.PathLike[str] | None,
        model: Model | str | None,
        chat_template: GivenTemplate | None,
        tenant: str | None,
        memories: SharedMemories | None,
    ) -> None:
        self._path = path
        self._base = path.parent
        self._home = home
        self._model = model
        self._chat_template = chat_template
        self._tenant = tenant
        self._memories = memories
        self._problems: list[Problem] = []
        self._opened: list[Any] = []
        self._files = [path]

    def loaded(self) -> LoadedAgent:
        """Return the agent.

        Raises:
            AgentFileError: The file is invalid. The error lists all problems.
        """
        try:
            loaded = self._load()
        # Every exception, such as Ctrl-C: opened servers and memories must be closed.
        except BaseException:
            self._close()
            raise
        if loaded is None or self._problems:
            self._close()
            raise AgentFileError(self._problems, self._files)
        return loaded

    def _close(self) -> None:
        for resource in self._opened:
            resource.close()

    def _load(self) -> LoadedAgent | None:
        """Return the agent, or None after problems."""
        file = read_yaml(self._path, self._problems)
        if file is None:
            return None
        spec = file.validated(AgentFile, self._problems)
        settings = self._settings(file)
        if spec is None:
            # The valid keys are read too, so that problems of the files that they name are reported together.
            spec = file.sound_part(AgentFile)
        if spec is None:
            return None
        version = hashlib.blake2b(file.text.encode(), digest_size=8)
        model: Any = None
        if settings is not None:
            with self._collecting(file, ("model",)):
                model = self._model_of(file, spec.model, settings)
        layers = self._layers(file, spec, version)
        options = self._options(file, spec, model, version)
        # The memory is opened last, because opening a memory creates a folder.
        memory = self._opened_memory(file, spec, layers)
        if self._problems:
            return None
        options["memory"] = memory
        layers_option = "layers"
        if isinstance(layers, str):
            layers_option = "instructions"
        options[layers_option] = layers
        agent: Any = None
        with self._collecting(file, ()):
            agent = Agent(model, **options)
        if agent is None:
            return None
        if spec.examples:
            with self._collecting(file, ("examples",)):
                agent = with_examples(agent, [Example(each.input, each.output) for each in spec.examples])
        if spec.deps is not None:
            with self._collecting(file, ("deps",)):
                agent = agent.with_deps(self._imported(spec.deps))
        source, files = self._path.as_posix(), tuple(self._files)
        return LoadedAgent(agent, source, spec.description, version.hexdigest(), memory, files, self._opened)

    def _opened_memory(self, file: YamlFile, spec: AgentFile, layers: Any) -> Memory | None:
        """Return the memory; None if the file has no memory, or after problems."""
        part = spec.memory
        if part is None or self._problems:
            return None
        if not isinstance(part, MemoryPart):
            part = MemoryPart()
        with self._collecting(file, ("memory",)):
            if isinstance(layers, Layers):
                check_shown(layers)
            return self._memory(part)
        return None

    def _layers(self, file: YamlFile, spec: AgentFile, version: Any) -> Any:
        """Return the layers of a folder with the instructions, or only the instructions."""
        if spec.layers is None:
            return spec.instructions
        with self._collecting(file, ("layers",)):
            self._files.append(self._base / spec.layers)
            folder = PromptFolder.load(self._base / spec.layers)
            version.update(folder.version.encode())
            if spec.instructions:
                return folder.layers(system=spec.instructions)
            return folder.layers()
        return spec.instructions

    def _options(self, file: YamlFile, spec: AgentFile, model: Any, version: Any) -> dict[str, Any]:
        """Return the arguments of the agent. Each part is read separately, so that all problems are reported."""
        options: dict[str, Any] = {"name": spec.name or self._path.name.partition(".")[0] or "agent"}
        options["tools"] = [
            tool for at, entry in enumerate(spec.tools) for tool in self._tools_of(file, ("tools", at), entry, version)
        ]
        if spec.descriptions:
            with self._collecting(file, ("descriptions",)):
                options["tools"] = described(options["tools"], spec.descriptions)
        options["guards"] = []
        for at, path in enumerate(spec.guards):
            with self._collecting(file, ("guards", at)):
                options["guards"].append(guard_of(self._imported(path)))
        if spec.skills is not None:
            with self._collecting(file, ("skills",)):
                options["tools"].append(self._skills(spec.skills, version))
        if spec.todos is not None:
            options["tools"].append(todo_tools())
        if spec.clear_results is not None:
            with self._collecting(file, ("clear_results",)):
                options["tools"].append(ClearResults(**spec.clear_results.model_dump(exclude_none=True)))
        readers: Mapping[str, Callable[[Any], Any]] = {
            "limits": lambda part: Limits(**part.model_dump(exclude_none=True)),
            "budget": budget_of,
            "counter": self._counter,
            "recall": recall_options_of,
            "compaction": lambda part: compaction_of(part, model),
            "output": self._imported,
        }
        for name, read in readers.items():
            part = getattr(spec, name)
            if part is not None:
                with self._collecting(file, (name,)):
                    options[name] = read(part)
        return options

    @contextmanager
    def _collecting(self, file: YamlFile, place: Place) -> Iterator[None]:
        """Collect errors of a `with` block as problems of a place in the file."""
        try:
            yield
        except AgentFileError as error:
            self._problems += error.problems
            self._files += error.files
        except PromptFilesError as error:
            self._problems += [file.problem(place, str(problem)) for problem in error.errors]
        except ERRORS as error:
            self._problems.append(file.problem(place, str(error) or type(error).__name__))

    def _model_of(self, file: YamlFile, entry: str | ModelPart, settings: ModelSettings) -> Model | None:
        """Return the model; None, with a problem, if the model or the chat template of the caller is invalid."""
        part = entry
        if isinstance(part, str):
            part = ModelPart(name=part)
        template = self._chat_template
        if template is None:
            template = self._chat_template_of(part)
        model: Model | str = part.name
        if self._model is not None:
            model = self._model
        try:
            if self._chat_template is not None:
                check_template_allowed(model)
            # The price is the price of the model in the file.
            price = None
            if self._model is None:
                price = price_of(part.price)
            named = agent_model(
                model, template, part.session_len, settings, part.control_tokens, part.template_kwargs, price
            )
            if part.redact is None:
                return named
            # Also around a model of the caller: another model must not receive the data.
            return RedactingModel(named, layers=part.redact)
        except ERRORS as error:
            argument = invalid_argument(error, self._model, self._chat_template)
            if argument is None:
                raise
            places = setting_places(error, file, argument, names_model=self._model is None)
            self._problems.append(Problem(argument, None, "; ".join([str(error), *places])))
            return None

    def _settings(self, file: YamlFile) -> ModelSettings | None:
        """Return the settings of the model; None after problems.

        The data of the file are read, because other keys of the model can be invalid.
        """
        settings: Any = file.data
        for key in ("model", "settings"):
            settings = settings.get(key) if isinstance(settings, Mapping) else None
        if not isinstance(settings, Mapping) or not all(isinstance(name, str) for name in settings):
            return ModelSettings()
        try:
            return ModelSettings(**settings)
        except AgentDefinitionError as error:
            for name, text in error.problems or [("", str(error))]:
                place: Place = ("model", "settings", *filter(None, (name,)))
                self._problems.append(file.problem(place, text))
        return None

    def _chat_template_of(self, part: ModelPart) -> str | Path | None:
        """Return the name or the file of the chat template in the agent file."""
        template = part.chat_template
        if template is None or template in CHAT_TEMPLATES:
            return template
        path = self._base / template
        # If the file exists only in the working folder, the error names the path next to the agent file.
        if path.exists() or Path(template).exists():
            return path
        return template

    def _counter(self, name: str) -> TokenCounter:
        kind, mark, encoding = name.partition(":")
        if mark and kind == "tiktoken":
            return TiktokenCounter(encoding)
        path = self._base / name
        if path.is_dir():
            path = path / "tokenizer.json"
        if not path.exists():
            raise AgentDefinitionError(
                f"missing file {path}; expected the tokenizer.json of the model, its folder, or an encoding of "
                "tiktoken, such as tiktoken:o200k_base",
                name="counter",
                path=str(path),
            )
        self._files.append(path)
        return TokenizersCounter(path)

    def _tools_of(self, file: YamlFile, place: Place, entry: str | MCPTool | AgentTool, version: Any) -> list[Any]:
        with self._collecting(file, place):
            if isinstance(entry, str):
                return [_as_tool(self._imported(entry), entry)]
            if isinstance(entry, MCPTool):
                return [self._mcp(entry)]
            # The path of a file is relative to the agent file; a module is imported by its name.
            source: str | Path = self._base / entry.agent
            if is_import_path(entry.agent) and not entry.agent.rpartition(":")[0].endswith(".py"):
                source = entry.agent
            elif not is_import_path(entry.agent) and not (self._base / entry.agent).exists():
                raise AgentDefinitionError(f"missing file {source}; check the path", name="agent", value=entry.agent)
            inner = load_agent(source, home=self._home, tenant=self._tenant, memories=self._memories)
            self._opened += inner._opened
            self._files += inner.files
            version.update(inner.version.encode())
            return [inner.agent.as_tool(name=entry.name, description=entry.description)]
        return []

    def _skills(self, folder: str, version: Any) -> SkillFolder:
        path = self._base / folder
        self._files.append(path)
        skills = SkillFolder(path)
        version.update(skills.version.encode())
        return skills

    def _imported(self, path: str) -> Any:
        file = path.rpartition(":")[0]
        if file.endswith(".py"):
            self._files.append(self._base / file)
        return imported(path, self._base)

    def _mcp(self, entry: MCPTool) -> Any:
        """Return the toolset of an MCP server, with the prefix of the entry."""
        server = self._mcp_server(entry)
        self._opened.append(server)
        if (prefix := entry.prefix) is None:
            return server

        async def prefixed(context: Any) -> Any:
            return (await server.at(context)).prefixed(prefix)

        return DynamicToolset(prefixed)

    def _mcp_server(self, entry: MCPTool) -> MCPToolset:
        policy: dict[str, Any] = {}
        if entry.approval is not None:
            policy = {"approval": entry.approval}
        if isinstance(entry.mcp, str):
            if entry.env:
                raise AgentDefinitionError("env is only valid for a command; for an address, use headers", name="env")
            return MCPToolset(entry.mcp, headers=expanded(entry.headers) or None, **policy)
        if entry.headers:
            raise AgentDefinitionError("headers are only valid for an address; for a command, use env", name="headers")
        return MCPToolset(entry.mcp, env=expanded(entry.env) or None, cwd=self._base, **policy)

    def _memory(self, part: MemoryPart) -> Memory:
        # A folder does not replace a database: a server has its access file in a folder, and its memory in a database.
        target: Any = part.home
        if "://" not in part.home:
            target = self._base / part.home
            if self._home is not None:
                target = self._home
        index: Any = part.index
        # A path in an agent file is relative to the file.
        if index is not None and "://" not in index:
            index = self._base / index
        scope = Scope()
        if self._tenant is not None:
            scope = Scope(self._tenant)
        options: dict[str, Any] = {"scope": scope, "index": index, "embedder": part.embedder}
        if self._memories is not None:
            return self._memories.open(target, shared=part.shared, **options)
        from agentkit_memory import Memory

        memory = Memory(target, shared=part.shared, **options)
        self._opened.append(memory)
        return memory


def _as_tool(value: Any, path: str) -> Any:
    """Return a tool, a toolset or a function unchanged; refuse other values."""
    if isinstance(value, type) or not (callable(value) or hasattr(value, "at") or library_of(value)):
        raise AgentDefinitionError(
            f"{path!r}: expected a function, a tool or a toolset, got "
            f"{getattr(value, '__name__', None) or value!r:.60}",
            name=path,
        )
    return value
