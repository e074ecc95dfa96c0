"""Configuration files of OpenCompass are read without running their code."""

from __future__ import annotations

import textwrap
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentkit.prompts.evaluation import InContext, InContextError, load_config, load_datasets
from agentkit_prompts.evaluation.config import config_expressions
from tests.prompts.evaluation.refusals import places, refused

SHIPPED = '''
from mmengine.config import read_base
from opencompass.openicl.icl_prompt_template import PromptTemplate
from opencompass.openicl.icl_retriever import FixKRetriever as Retriever
from opencompass.openicl.icl_inferencer import PPLInferencer
from opencompass.datasets import SumsDataset
import os.path as osp

with read_base():
    from .subjects import subjects, names as all_names
    from .nothing import *

HINT = """
Choose one: {question}
""".strip()
sums_datasets = []
for _split in ['val', 'test'][:1]:
    for _number, _name in enumerate(all_names):
        _title = subjects[_name][1].replace('_', ' ')
        if _name == 'skipped':
            continue
        sums_datasets.append(dict(
            abbr=f'sums-{_name}' if _split == 'val' else 'sums-test-' + _name,
            type=SumsDataset,
            path=osp.join('data', 'sums'),
            reader_cfg=dict(input_columns=['question', *'AB'], output_column='answer', test_split=_split),
            infer_cfg=dict(
                ice_template=dict(
                    type=PromptTemplate,
                    template={one: f'About {_title}: {HINT}\\nAnswer: {one}' for one in ['A', 'B']},
                ),
                prompt_template=dict(
                    type=PromptTemplate,
                    template={one: '</E>' + HINT + f'{one} {1 / 2} {_number}' for one in ('A', 'B')},
                    ice_token='</E>',
                ),
                retriever=dict(type=Retriever, fix_id_list=list(range(2))),
                inferencer=dict(type=PPLInferencer),
            ),
        ))
del _split, _number, _name
'''


def files(folder: Path, **held: str) -> Path:
    for name, text in held.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text), "utf-8")
    return folder / "main.py"


def read(folder: Path, source: str) -> Any:
    return load_config(files(folder, main=source))


def test_the_datasets_are_equal_to_the_values_of_the_code_in_the_file(tmp_path: Path) -> None:
    subjects = "subjects = {'one': ['x', 'first_subject'], 'skipped': ['x', 'y']}\nnames = [*subjects.keys()]\n"
    main = files(tmp_path, main=SHIPPED, subjects=subjects, nothing="other = 1")
    (dataset,) = load_datasets(main)
    assert (dataset["abbr"], dataset["path"]) == ("sums-one", "data/sums")
    assert dataset["type"] == "opencompass.datasets.SumsDataset" and type(dataset["type"]) is str
    infer_cfg = dataset["infer_cfg"]
    assert infer_cfg["ice_template"]["template"] == {
        one: f"About first subject: Choose one: {{question}}\nAnswer: {one}" for one in "AB"
    }
    assert infer_cfg["prompt_template"]["template"]["B"] == "</E>Choose one: {question}B 0.5 0"
    assert dataset["reader_cfg"]["input_columns"] == ["question", "A", "B"]
    rows = [{"question": "q", "A": 1, "B": 2, "answer": "A"}] * 2
    assert InContext.from_cfg(infer_cfg, dataset["reader_cfg"], train=rows).mode == "ppl"


def test_datasets_of_other_files_are_collected(tmp_path: Path) -> None:
    entry = "dict(infer_cfg=dict(prompt_template=dict(template='{q}')), reader_cfg=dict(input_columns='q'), abbr=%r)"
    inner = tmp_path / "configs" / "datasets"
    inner.mkdir(parents=True)
    (inner / "one.py").write_text(f"one_datasets = [{entry % 'one'}]")
    (inner / "two.py").write_text(f"two_datasets = [{entry % 'two'}]")
    (tmp_path / "configs" / "all.py").write_text(
        "from mmengine.config import read_base\n"
        "with read_base():\n"
        "    from .datasets.one import one_datasets\n"
        "    from configs.datasets.two import two_datasets\n"
        "datasets = sum((v for k, v in locals().items() if k.endswith('_datasets')), [])\n"
    )
    assert [one["abbr"] for one in load_datasets(tmp_path / "configs" / "all.py")] == ["one", "two"]


def test_functions_of_the_file_are_evaluated(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        import copy, math
        def steps(low, high, count=3, name='x'):
            if count < 2:
                raise ValueError('too few')
            values = []
            for number in range(count):
                if number == 5:
                    continue
                values.append(round(low + number * (high - low) / (count - 1), 2))
            return {name: values}
        base = steps(0, 1, name='a')
        other = copy.deepcopy(base)
        other['a'][0] = math.exp(0)
        last = base['a'][-1:] + steps(0, 1, 7)['x']
        key, value = 1, 2, 3
        few = steps(0, 1, 1)
        wrong = steps(0, 1, 2, 'x', 3)
        """,
    )
    assert found["base"] == {"a": [0.0, 0.5, 1.0]} and found["other"] == {"a": [1.0, 0.5, 1.0]}
    assert found["last"] == [1.0, 0.0, 0.17, 0.33, 0.5, 0.67, 1.0]
    assert (refused(lambda: found["key"]).line, refused(lambda: found["value"]).line) == (16, 16)
    assert (refused(lambda: found["few"]).line, refused(lambda: found["few"]).name) == (17, "Raise")
    assert (refused(lambda: found["wrong"]).line, refused(lambda: found["wrong"]).name) == (18, "steps")


def test_code_opens_only_files_in_the_folder_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hint.txt").write_text("Think.")
    (tmp_path.parent / "secret.txt").write_text("secret")
    source = """
    import os
    with open(os.path.join(os.path.dirname(__file__), {name!r}), 'r') as file:
        hint = file.read()
    """
    assert read(tmp_path, source.format(name="hint.txt"))["hint"] == "Think."
    for name in ("../secret.txt", "/etc/passwd"):
        found = read(tmp_path, source.format(name=name))
        error = refused(lambda found=found: found["hint"])  # type: ignore[misc]
        assert (error.line, error.name) == (3, "root")
    read(tmp_path, source.format(name="hint.txt"))
    monkeypatch.chdir(tmp_path.parent)
    assert load_config(Path(tmp_path.name, "main.py"))["hint"] == "Think."


def test_no_file_outside_of_the_root_is_imported(tmp_path: Path) -> None:
    inner = tmp_path / "checkout" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "configs").mkdir()
    for folder in (tmp_path, tmp_path / "configs", inner.parent):
        (folder / "keys.py").write_text("KEY = 'secret'")
    (inner / "linked.py").symlink_to(tmp_path / "keys.py")
    (inner / "away").symlink_to(tmp_path)
    imports = ["...keys", "..keys", ".linked", ".away.keys", "configs.keys", "...configs.keys"]
    for name in imports:
        found = read(inner, f"from {name} import KEY as x")
        assert refused(lambda found=found: found["x"]).name == "root", name  # type: ignore[misc]
    assert refused(lambda: read(inner, f"from .{'a' * 5000} import x")["x"]).name == f".{'a' * 5000}"
    for root, name in ((tmp_path, "...keys"), (tmp_path, "configs.keys"), (inner.parent, "..keys")):
        main = files(inner, main=f"from {name} import KEY as x")
        assert load_config(main, root=root)["x"] == "secret"
    error = refused(lambda: load_config(main, root=tmp_path / "configs"))
    assert (error.name, error.value) == ("root", str(tmp_path / "configs"))


def test_configurations_in_a_folder_configs_import_each_other(tmp_path: Path) -> None:
    inner = tmp_path / "opencompass" / "configs" / "datasets" / "collections"
    inner.mkdir(parents=True)
    (inner.parent / "sums.py").write_text("sums_datasets = [dict(infer_cfg={}, reader_cfg={})]")
    (inner / "all.py").write_text(
        "from mmengine.config import read_base\nwith read_base():\n    from ..sums import sums_datasets\n"
        "    from opencompass.configs.datasets.sums import sums_datasets as more\n"
    )
    variables = load_config(inner / "all.py")
    assert len(variables["sums_datasets"]) == 1 and variables["more"] == variables["sums_datasets"]
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "main.py").write_text("from opencompass.configs.datasets.sums import sums_datasets")
    assert refused(lambda: load_datasets(tmp_path / "examples" / "main.py")).name == "root"
    assert len(load_datasets(tmp_path / "examples" / "main.py", root=tmp_path)) == 1


def test_no_code_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failures = []
    for source in (
        "import os\nx = os.system('touch ran')",
        "x = __import__('os').system('touch ran')",
        "x = eval('1')",
        "x = open('ran', 'w')",
        "from pathlib import Path\nx = Path('ran').touch()",
        "x = ().__class__.__base__.__subclasses__()",
        "x = '{0.__class__}'.format(1)",
        "x = '{0[0]}'.format('a')",
        "x = [].__class__",
        "class x:\n    pass",
        "import os\n@os.system\ndef x(): pass",
        "import subprocess\nx = [subprocess.run(['touch', 'ran']) for _ in [1]]",
        "x = type('X', (), {})",
        "x = getattr('a', 'upper')",
        "x = dict.fromkeys('ab')",
        "import os\nx = os.environ['HOME']",
        "def f(g): return g(g)\nx = f(f)",
        "def f(): return f()\nx = f()",
    ):
        found = read(tmp_path, source)
        error = refused(lambda found=found: found["x"])  # type: ignore[misc]
        if error.line != source.count("\n", 0, source.rindex("x")) + 1 and not source.startswith("class"):
            failures.append((source, error.line))
        if (tmp_path / "ran").exists():
            failures.append((source, "was run"))
    assert failures == []


BOMBS = [
    "x = 'a' * 1_000_000_000",
    "x = [0] * 1_000_000_000",
    "x = list(range(1_000_000_000_000))",
    "x = ('a' * 1_000_000).replace('a', 'b' * 1_000_000)",
    "x = ('a' * 1_000_000).join(['b'] * 10_000)",
    "x = ','.join(['x' * 1_000_000] * 1_000_000)",
    "x = ('{0}' * 100_000).format('x' * 1_000_000)",
    "x = '{:>1000000000}'.format(1)",
    "y = 'x' * 1_000_000\nx = f'" + "{y}" * 10_000 + "'",
    "x = f'{1:>1000000000}'",
    "x = [1, 2]\nfor _ in range(60):\n    x = [x, x]",
    "x = [1, 2]\nfor _ in range(60):\n    x = [x, x]\ny = x == x[0]\nx = y",
    "x = [1, 2]\nfor _ in range(60):\n    x = [x, x]\ny = str(x)\nx = y",
    "x = 2\nfor _ in range(60):\n    x = x * x",
    "x = []\nfor _ in range(60):\n    x.append(x)",
    "x = []\nfor _ in range(20_000):\n    x = [x]",
    "x = {}\nfor _ in range(20_000):\n    x = dict(a=x)",
    "import copy\nx = []\nfor _ in range(20_000):\n    x = [x]\ny = copy.deepcopy(x)\nx = y",
    "import itertools\nx = itertools.product(range(10_000), range(10_000))",
    "import itertools\nx = list(itertools.product([0] * 1_000, [0] * 999, [0] * 10))",
    "x = int('9' * 5_000)",
    "x = " + "9" * 4_100,
    "x = []\nfor a in [0] * 5_000:\n    for b in [0] * 5_000:\n        y = 1",
    "x = 1\nwhile True:\n    x = 2",
    "x = sum([[0] * 900] * 900, [])\nfor _ in range(20_000):\n    x = x + []",
    "x = [0] * 900_000\nx.extend([0] * 900_000)",
    "x = [0] * 900_000\nfor _ in range(100):\n    y = x[1:]",
    "x = [0] * 900_000\nfor _ in range(100):\n    y = 1 in x",
    "x = ['x' * 999_998 + 'y'] * 900_000\ny = 'x' * 999_998 + 'z' in x\nx = y",
    "x = 1.5 in range(1_000_000_000_000)",
    "x = []\nx.extend(range(1_000_000_000))",
    "x = sum([range(1_000_000)] * 1_000_000, [])",
    "x = sum(['x'] * 1_000_000, '')",
    "x = zip(range(1_000_000_000), range(1_000_000_000))",
    "x = enumerate(range(1_000_000_000))",
    "x = round(10, -1_000_000_000)",
    "x = set([[1]])",
    "x = {(1, 2): 3}",
    f"x = {{{1 << 61}: 1}}",
    f"x = dict([[{(1 << 61) - 1}, 1]])",
    "x = ('a' * 900_000).strip('b' * 900_000 + 'a')",
    "with open(['x' * 1_000_000] * 1_000_000) as f:\n    x = f.read()",
]


def test_endless_code_is_an_error(tmp_path: Path) -> None:
    failures = []
    for source in BOMBS:
        began = time.process_time()
        try:
            read(tmp_path, source)["x"]
            failures.append((source[:80], "was read"))
        except InContextError:
            pass
        if (seconds := time.process_time() - began) > 10:
            failures.append((source[:80], f"took {seconds:.1f} s"))
    assert failures == []


UNSUPPORTED = [
    ("class x:\n    y = 1", 2, "ClassDef"),
    ("x = lambda: 1", 2, "Lambda"),
    ("x = 1\nwhile x:\n    x = 0", 3, "While"),
    ("try:\n    x = 1\nfinally:\n    x = 2", 2, "Try"),
    ("for x in [1]:\n    pass", 2, "Pass"),
    ("for x in [1]:\n    break", 2, "Break"),
    ("for x in [1]:\n    y = 2\nelse:\n    y = 3", 2, "For with else"),
    ("x = {1, 2}", 2, "Set"),
    ("x = {one for one in [1]}", 2, "SetComp"),
    ("x = {**{}}", 2, "Dict with **"),
    ("x = (y := 1)", 2, "NamedExpr"),
    ("x = 2 ** 3", 2, "Pow"),
    ("x = 'a' % 1", 2, "Mod"),
    ("x = b'a'", 2, "Constant bytes"),
    ("x = f'{1!r}'", 2, "FormattedValue with a format or conversion"),
    ("x = f'{1:>5}'", 2, "FormattedValue with a format or conversion"),
    ("def x(*values):\n    return 1", 2, "FunctionDef with decorators, * or /"),
    ("import os\n@os.path\ndef x():\n    return 1", 4, "FunctionDef with decorators, * or /"),
    ("x = [1, 2]\ndel x[0]", 3, "Delete of an item of a list"),
    ("x, *y = 1, 2", 2, "assignment to Starred"),
    ("x = 'a'.zfill(5)", 2, "zfill"),
    ("x = [1]\nx.insert(0, 2)", 3, "insert"),
    ("x = ().__class__", 2, "__class__"),
]
"""Code after a first line, the line of the statement that fails, and the name in its error."""


def test_the_error_of_an_unsupported_construct_has_its_line(tmp_path: Path) -> None:
    failures = []
    for source, line, name in UNSUPPORTED:
        variables = read(tmp_path, f"y = 1\n{source}")
        error = refused(lambda variables=variables: variables["x"])  # type: ignore[misc]
        if (error.path, error.line, error.name) != (str(tmp_path / "main.py"), line, name):
            failures.append((source, error.line, error.name))
    assert failures == []


def test_rounding_is_limited(tmp_path: Path) -> None:
    assert read(tmp_path, "x = [round(7, -4000), round(7.25, 4000)]")["x"] == [0, 7.25]
    for digits in (-4001, 4001):
        found = read(tmp_path, f"x = round(7, {digits})")
        assert refused(lambda found=found: found["x"]).line == 1  # type: ignore[misc]


ENTRY = "dict(abbr='{0}', reader_cfg=dict(input_columns=['q']), infer_cfg=dict(prompt_template=dict(template='{1}')))"
ONCE = {
    "the list of all": "all_datasets = sum((v for k, v in locals().items() if k.endswith('_datasets')), [])",
    "a sum": "all_datasets = a_datasets + b_datasets",
    "the list `datasets`": "datasets = [*a_datasets, *b_datasets, *a_datasets]",
    "another name": "c_datasets = a_datasets",
    "a deep copy": "import copy\nc_datasets = copy.deepcopy(b_datasets)",
    "the same text": f"c_datasets = [{ENTRY.format('a', 'x')}]",
    "another order of the keys": "c_datasets = [dict(infer_cfg=d['infer_cfg'], reader_cfg=d['reader_cfg'], abbr='a')"
    " for d in a_datasets]",
    "twice in a list": "a_datasets += a_datasets",
    "a loop": "all_datasets = []\nfor d in a_datasets + b_datasets:\n    all_datasets.append(d.copy())",
    "an update of globals()": "globals()['c_datasets'] = b_datasets",
}


@pytest.mark.parametrize("collected", ONCE.values(), ids=ONCE)
def test_entries_with_the_same_content_are_one_dataset(tmp_path: Path, collected: str) -> None:
    lists = f"a_datasets = [{ENTRY.format('a', 'x')}]\nb_datasets = [{ENTRY.format('b', 'x')}]\n"
    datasets = load_datasets(files(tmp_path, main=lists + collected))
    assert [dataset["abbr"] for dataset in datasets] == ["a", "b"]


def test_entries_with_different_contents_are_different_datasets(tmp_path: Path) -> None:
    values = ["'x'", "'y'", "1", "1.0", "True", "[1]", "(1,)", "['1']", "{1: 2}", "{'1': 2}", "None", "''", "[[1], []]"]
    source = f"a_datasets = [dict(abbr='a', reader_cfg=dict(), infer_cfg=dict(x=x)) for x in [{', '.join(values)}]]"
    assert len(load_datasets(files(tmp_path, main=source + "\nb_datasets = a_datasets + a_datasets"))) == len(values)


ALIASES = [
    ("x = dict[str, list[str] | str](a=['q'], b='c')", {"a": ["q"], "b": "c"}),
    ("x = dict[str, dict[str, 'Later']]()", {}),
    ("x = list[dict[str, int]]([{'a': 1}])", [{"a": 1}]),
    ("x = tuple[int, ...]([1, 2])", (1, 2)),
    ("x = list[int]()", []),
    ("x = str[0:1]('a')", "a"),
    ("from typing import Any, Dict\nx = Dict[str, Any](a=1)", {"a": 1}),
    ("import typing\nx = typing.List[int]([1])", [1]),
    ("from typing import Optional\nx: Optional[dict[str, int]] = dict(a=1)", {"a": 1}),
    ("x: 'not | read'\nx = 1", 1),
    ("x: list[int] = []\nx += [1]", [1]),
    ("kind = dict[str, str]\nx = kind(a='b')", {"a": "b"}),
    ("def f(a: dict[str, int]) -> dict[str, int]:\n    return dict[str, int](a)\nx = f({'b': 1})", {"b": 1}),
]


def test_a_parametrised_type_is_the_type(tmp_path: Path) -> None:
    assert [read(tmp_path, source)["x"] for source, _ in ALIASES] == [value for _, value in ALIASES]


def test_variables_of_globals_are_the_variables_themselves(tmp_path: Path) -> None:
    source = """
    import os
    g = globals()
    g['a'] = [1]
    y = a
    y += [2]
    del globals()['y']
    names = [name for name in list(globals()) if name.startswith('na')]
    broken = os.getcwd()
    get = globals().get('broken')
    item = globals()['broken']
    missing = globals()['unknown']
    each = [value for value in globals().values()]
    globals()[1] = globals()[None] = 2
    """
    variables = read(tmp_path, source)
    assert (variables["a"], "y" in variables, variables["names"], "g" in variables) == ([1, 2], False, [], False)
    lines = [refused(lambda name=name: variables[name]).line for name in ("get", "item", "missing", "each")]  # type: ignore[misc]
    assert lines == [9, 9, 12, 9] and all(isinstance(name, str) for name in variables)


def test_endless_recursion_is_an_error_of_its_variable_only(tmp_path: Path) -> None:
    source = "def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\nx = f({0})\ny = 1"
    assert read(tmp_path, source.format(20))["x"] == 20
    found = read(tmp_path, source.format(100_000))
    assert (refused(lambda: found["x"]).line, found["y"]) == (3, 1)


def test_nested_loops_stop_at_the_limit_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_expressions, "_MAX_STEPS", 20_000)
    loops = "for a in [0] * {0}:\n    for b in [0] * {0}:\n        c = 1\nx = 1"
    assert read(tmp_path, loops.format(30))["x"] == 1
    assert refused(lambda: read(tmp_path, loops.format(300))["x"]).value == 20_000


@pytest.mark.parametrize(
    "add",
    [
        "a_datasets.append(d)",
        "a_datasets += [d]",
        "a_datasets.extend([d])",
        "globals()['a_datasets'].append(d)",
        "globals()['a_datasets'] += [d]",
        "locals()['a_datasets'].append(d)",
        "globals().get('a_datasets', []).append(d)",
        "globals().setdefault('a_datasets', []).append(d)",
        "if 'a_datasets' in globals(): a_datasets.append(d)",
        "globals()[f'a{number}_datasets'] = [d]",
        "vars()['a_datasets'].append(d)",
        "globals().update({f'a{number}_datasets': [d]})",
    ],
)
def test_the_steps_to_read_a_file_are_proportional_to_its_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, add: str
) -> None:
    source = f"""
    cfg = dict(prompt_template=dict(template='{{q}}'), retriever=dict(type='ZeroRetriever'))
    a_datasets = []
    for number in range(COUNT):
        d = dict(abbr=f'a{{number}}', reader_cfg=dict(input_columns=['q']), infer_cfg=cfg, eval_cfg=cfg)
        {add}
    """
    for count in (100, 1_000):
        monkeypatch.setattr(config_expressions, "_MAX_STEPS", 100 + 40 * count)
        files(tmp_path, main=source.replace("COUNT", str(count)))
        assert len(load_datasets(tmp_path / "main.py")) == count


def test_a_dataset_that_is_listed_many_times_counts_once(tmp_path: Path) -> None:
    source = """
    one = dict(infer_cfg=dict(a=['x'] * 10_000), reader_cfg={}, abbr='one')
    datasets = [one] * 1_000
    others = datasets + datasets
    """
    assert len(load_config(files(tmp_path, main=source))["others"]) == 2_000
    assert [dataset["abbr"] for dataset in load_datasets(tmp_path / "main.py")] == ["one"]
    copy = "one = dict(infer_cfg=dict(a=[['x'] * 10_000] * 1_000), reader_cfg={})\ndatasets = [one]"
    assert refused(lambda: load_datasets(files(tmp_path, main=copy))).name == "one"


def test_a_list_above_its_limit_is_an_error_at_its_statement(tmp_path: Path) -> None:
    assert refused(lambda: read(tmp_path, "x = [0] * 900_000\nx.extend([0] * 900_000)")["x"]).line == 2


def test_a_too_long_f_string_is_an_error_of_its_variable_only(tmp_path: Path) -> None:
    held = read(tmp_path, "part = 'x' * 900_000\nx = f'" + "{part}" * 2_000 + "'\ny = 1")
    assert held["y"] == 1
    assert refused(lambda: held["x"]).line == 2


@pytest.mark.parametrize(
    "source", ["x = 1\nx += 'a'", "x = [1]\nx[5] = 1", "x = {}\nx[[]] = 1", "with open('a', []) as x:\n    pass"]
)
def test_a_python_error_is_an_error_of_its_variable(tmp_path: Path, source: str) -> None:
    held = read(tmp_path, f"{source}\nb = 2")
    assert held["b"] == 2
    assert refused(lambda: held["x"]).line in (1, 2)


def test_the_reason_of_an_unreadable_variable_is_short(tmp_path: Path) -> None:
    held = read(tmp_path, "x0 = float('9x' * 400_000)\n" + "".join(f"x{n + 1} = x{n}\n" for n in range(2_000)))
    for name in ("x0", "x1", "x2000"):
        with pytest.raises(InContextError) as found:
            held[name]
        assert len(str(found.value)) < 1_000


def test_a_file_of_code_or_yaml_is_not_longer_than_one_is(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("a\n" * 600_000)
    (tmp_path / "long.yaml").write_text("# \n" * 400_000)
    for name, limit in (("long.py", 1_000_000), ("long.yaml", 1_000_000)):
        error = refused(lambda name=name: load_config(tmp_path / name))  # type: ignore[misc]
        assert (error.path, error.value) == (str(tmp_path / name), limit)
    for number in range(20):
        (tmp_path / f"part{number}.py").write_text("#" * 400_000)
    imports = "\n".join(f"from .part{number} import *" for number in range(20))
    assert refused(lambda: read(tmp_path, imports)).value == 1_000_000


def test_common_expressions_have_their_python_values(tmp_path: Path) -> None:
    held = read(
        tmp_path,
        """
        import os
        numbers = sum([range(3), [5]], [])
        total = sum(range(4), 1.5)
        pairs = dict([('a', 1), ['b', 2]], c=3)
        pairs.update({'d': 4})
        found = 3 in range(100_000), 'a' in range(9), 'a' not in pairs, 1 <= total < 8, pairs is not None
        shown = '{}-{name}-{0}'.format('a', 2, name='n')
        path = os.path.join('a', 'b') + os.environ.get('HOME', '!')
        kinds = isinstance(1, (int, str)), isinstance('a', dict)
        rounded = round(1234.567, 1), round(1234, -2), round(2.5)
        parts = [*'a b'.split(), 'C'.upper()][::-1]
        pairs2 = [one + str(two) for one, two in zip('ab', [1, 2]) if two > 0 and one]
        both = {**{}} if 0 else {name: value for name, value in pairs.items() if not value == 2}
        total += len(set('aab')) // 2 - -1
        """,
    )
    assert {name: held[name] for name in held} == {
        "numbers": [0, 1, 2, 5],
        "total": 9.5,
        "pairs": {"a": 1, "b": 2, "c": 3, "d": 4},
        "found": (True, False, False, True, True),
        "shown": "a-n-a",
        "path": "a/b!",
        "kinds": (True, False),
        "rounded": (1234.6, 1200, 2),
        "parts": ["C", "b", "a"],
        "pairs2": ["a1", "b2"],
        "both": {"a": 1, "c": 3, "d": 4},
    }


def test_a_value_that_is_shared_a_million_times_over_is_an_error(tmp_path: Path) -> None:
    assert refused(lambda: read(tmp_path, "x = [1]\nfor _ in range(60):\n    x = [x, x]")).name == "x"
    doubled = [f"{one}: &{one} [{', '.join(['*' + before] * 9)}]" for before, one in pairwise("abcdefghij")]
    (tmp_path / "x.yaml").write_text("\n".join(["a: &a [1, 2]", *doubled]))
    assert refused(lambda: load_config(tmp_path / "x.yaml")).name == "YAML"


def test_an_error_names_the_first_statement_that_cannot_be_read(tmp_path: Path) -> None:
    source = """
    from elsewhere import prompt_of
    text = prompt_of('x')
    fine = 1
    made_datasets = []
    made_datasets.append(dict(infer_cfg=dict(prompt_template=dict(template=text)), reader_cfg={}))
    """
    assert read(tmp_path, source)["fine"] == 1
    error = refused(lambda: load_datasets(tmp_path / "main.py"))
    assert (error.path, error.line, error.name) == (str(tmp_path / "main.py"), 3, "elsewhere.prompt_of")
    error = refused(lambda: load_config(tmp_path / "main.py")["text"])
    assert (error.line, error.name) == (3, "elsewhere.prompt_of")


def test_missing_damaged_or_cyclic_files_are_errors(tmp_path: Path) -> None:
    for name in ("none.py", "none.yaml"):
        error = refused(lambda name=name: load_config(tmp_path / name))  # type: ignore[misc]
        assert (error.path, error.value) == (str(tmp_path / name), None)
        assert isinstance(error.__cause__, FileNotFoundError)
    assert refused(lambda: load_config(tmp_path / "x.json")).value == ".json"
    assert isinstance(refused(lambda: read(tmp_path, "x = (")).__cause__, SyntaxError)
    assert refused(lambda: read(tmp_path, "from .other import x")["x"]).name == ".other"
    files(tmp_path, one="from .two import x", two="from .one import x")
    assert refused(lambda: load_config(tmp_path / "one.py")["x"]).line == 1
    assert refused(lambda: load_config(tmp_path / "two.py")["x"]).line == 1
    assert refused(lambda: read(tmp_path, "datasets = []")["dataset"]).name == "dataset"
    assert refused(lambda: load_datasets(files(tmp_path, main="a = 1"))).name == "datasets"
    main = files(tmp_path, main="datasets = [dict(infer_cfg={}, abbr='x')]")
    assert places(lambda: load_datasets(main)) == ("datasets[0].reader_cfg",)


def test_yaml_has_the_same_keys(tmp_path: Path) -> None:
    file = tmp_path / "sums.yaml"
    file.write_text(
        """
datasets:
  - abbr: sums
    reader_cfg: {input_columns: [question], output_column: answer}
    infer_cfg:
      prompt_template: {type: PromptTemplate, template: "Q: {question}\\nA: "}
      retriever: {type: ZeroRetriever}
      inferencer: {type: GenInferencer, max_out_len: 5}
"""
    )
    (dataset,) = load_datasets(file)
    icl = InContext.from_cfg(dataset["infer_cfg"], dataset["reader_cfg"])
    assert icl.prompt({"question": "1+1=?"}) == "Q: 1+1=?\nA: " and icl.inferencer.max_out_len == 5
    file.write_text("datasets: []\ndatasets: []\n")
    assert refused(lambda: load_datasets(file)).name == "YAML"
    wrong = {"- a": None, "1: 2": None, "a: [": "YAML", "a: !!python/name:os.system": "YAML"}
    for text, name in wrong.items():
        file.write_text(text)
        error = refused(lambda: load_config(file))
        assert (error.path, error.name) == (str(file), name)


@pytest.mark.parametrize(
    "loop",
    [
        "for i in range(1000000):\n    y = i",
        f"x = {'9' * 3_900}\nfor i in range(1000000):\n    y = x // {'7' * 1_900}",
        f"x = {'9' * 3_900}\nfor i in range(1000000):\n    y = f'{{x}}'",
        "x = 'a' * 900000\nfor i in range(1000000):\n    y = x.startswith(x)",
        "x = 'a' * 900000\nfor i in range(1000000):\n    y = 'b' in x",
        "import copy\nx = [[0] * 1000 for i in range(200)]\nfor i in range(1000000):\n    y = copy.deepcopy(x)",
        "x = {f'k{i}': i for i in range(50000)}\nfor i in range(1000000):\n    x.update(x)",
        "x = {f'k{i}': i for i in range(50000)}\nfor i in range(1000000):\n    y = dict(**x)",
    ],
)
def test_a_slow_configuration_is_refused_quickly(tmp_path: Path, loop: str) -> None:
    start = time.process_time()
    assert "steps to read" in str(refused(lambda: read(tmp_path, loop)))
    assert time.process_time() - start < 2.5
