"""Print a program that imports every public name of the installed agentkit."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

root = Path(find_spec("agentkit").submodule_search_locations[0])
stubs = [stub.relative_to(root.parent).with_suffix("").parts for stub in root.rglob("*.pyi")]
modules = {"agentkit.errors", "agentkit.testing", *(".".join(stub).removesuffix(".__init__") for stub in stubs)}
for module in sorted(modules):
    for name in import_module(module).__all__:
        print(f"from {module} import {name} as {module.replace('.', '_')}_{name}")
