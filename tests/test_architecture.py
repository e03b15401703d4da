"""The house as it is drawn from its imports and measured by its lines, and what works without a part of it."""

import ast
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from small_run import write_parallel_text
from waiting import TIME_LIMIT

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("autograd", "parallel", "minitransformer", "cli")
MAY_IMPORT = {
    "autograd": {"autograd"},
    "parallel": {"parallel"},
    "minitransformer": {"minitransformer", "autograd", "parallel"},
    "cli": set(PACKAGES),
}
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
LONGEST_FILE, LONGEST_FUNCTION = 600, 60
HALF_OF_FILES = 200  # lines


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text_of(path))))


@cache
def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# The table of extras, and public names that are imported on first use.
MAY_NAME_MODULES = {"minitransformer.system.extensions", "minitransformer"}


@cache
def module_names() -> frozenset[str]:
    return frozenset(name for name in map(module_of, FILES) if "." in name)


def imported_modules(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:  # a name may be a module or something in one
                yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Constant) and module_of(path) not in MAY_NAME_MODULES:
            name = str(node.value).partition(":")[0]
            if name in module_names():  # an import by name is an import, too
                yield name


def test_imports_run_downwards() -> None:
    for path in FILES:
        ours = {name.split(".")[0] for name in imported_modules(path)} & set(PACKAGES)
        assert ours <= MAY_IMPORT[module_of(path).split(".")[0]], path


def test_a_wheel_can_rewrite_each_use_of_a_packages_name() -> None:
    """hatch_build.py rewrites lines that begin with ``from autograd``; no other import, and no string."""
    moved = ("autograd", "parallel", "cli")
    form = re.compile(r" *from [\w.]+ import ")
    for path in FILES:
        lines = text_of(path).splitlines()
        for node in nodes_of(path):
            if isinstance(node, ast.Import):
                assert not {alias.name.split(".")[0] for alias in node.names} & set(moved), (path, node.lineno)
            elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in moved:
                assert form.match(lines[node.lineno - 1]), (path, node.lineno)
            elif isinstance(node, ast.Constant):
                name = str(node.value).partition(":")[0]
                assert not (name in module_names() and name.startswith(moved)), (path, node.lineno)


def test_matrix_products_of_the_engine_ask_for_threads_in_one_place() -> None:
    multiplying = {module_of(path) for path in FILES for node in nodes_of(path) if isinstance(node, ast.MatMult)}
    engine = {module for module in multiplying if module.startswith("autograd")}
    assert engine == {"autograd.blas"}, "write autograd.blas.product(x, y)"


@cache
def graph() -> dict[str, set[str]]:
    modules = {module_of(path): path for path in FILES}
    return {
        module: {name if name in modules else name.rpartition(".")[0] for name in imported_modules(path)}
        & (modules.keys() - {module})
        for module, path in modules.items()
    }


def test_no_module_imports_itself_in_a_circle() -> None:
    """Packages' own __init__ modules are left out: they gather what lies below them."""
    order = TopologicalSorter({module: imports - set(PACKAGES) for module, imports in graph().items()})
    order.prepare()  # raises CycleError, which names the cycle


def package_of(module: str) -> str:
    """Return the sub-package of ``minitransformer`` that a module belongs to; of other modules their package."""
    depth = 3 if module.startswith("minitransformer.extras.") else 2
    return ".".join(module.split(".")[: depth if module.startswith("minitransformer.") else 1])


def test_no_sub_package_imports_itself_through_another() -> None:
    edges: dict[str, set[str]] = {}
    for module, imports in graph().items():
        edges.setdefault(package_of(module), set()).update(map(package_of, imports - set(PACKAGES)))
    TopologicalSorter({package: packages - {package} for package, packages in edges.items()}).prepare()


CORE = {"config", "data", "inference", "model", "system", "text", "training"}
EXTRAS = {"convert", "demo", "doctor", "files", "paper", "parsing", "report", "serve"}


def test_minitransformer_is_a_core_and_extras_that_it_does_not_import() -> None:
    packages = {
        path.parent.relative_to(ROOT / "minitransformer").parts[:2] for path in FILES if "minitransformer" in path.parts
    }
    assert packages == {(), ("extras",)} | {(name,) for name in CORE} | {("extras", name) for name in EXTRAS}
    for module, imports in graph().items():
        if not module.startswith(("minitransformer.extras", "cli")) and module != "minitransformer":  # all names
            assert not [name for name in imports if name.startswith("minitransformer.extras")], module


def test_files_and_functions_are_small_and_the_training_loop_depends_on_few_modules() -> None:
    n_lines = {path: text_of(path).count("\n") for path in FILES}
    assert [path for path, n in n_lines.items() if n > LONGEST_FILE] == []
    assert statistics.median(n_lines.values()) <= HALF_OF_FILES
    functions = [(path, node) for path in FILES for node in nodes_of(path) if isinstance(node, ast.FunctionDef)]
    long = [(path, node) for path, node in functions if (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION]
    assert [(module_of(path), node.name) for path, node in long] == []
    assert len(graph()["minitransformer.training.loop"]) <= 14


def test_cupy_is_imported_in_one_file() -> None:
    mentioning = [module_of(path) for path in FILES if 'import_module("cupy")' in text_of(path)]
    importing = [module_of(path) for path in FILES if any(m.startswith("cupy") for m in imported_modules(path))]
    assert (mentioning, importing) == (["autograd.array"], [])


def test_the_packages_of_the_server_are_imported_in_one_folder() -> None:
    web = {"starlette", "uvicorn", "prometheus_client"}
    importing = [path for path in FILES if web & {name.split(".")[0] for name in imported_modules(path)}]
    assert {path.parent for path in importing} == {ROOT / "minitransformer" / "extras" / "serve"}


def test_a_class_name_stands_for_one_class() -> None:
    classes = [(node.name, path) for path in FILES for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
    names = Counter(name for name, _ in classes)
    assert [(name, module_of(path)) for name, path in classes if names[name] > 1] == []


# Methods, read after what they belong to: ``Segments.of_lengths(lengths)``.
METHODS_OF = {"of_all", "of_arrays", "of_kind", "of_lengths", "of_lines", "of_preset"}


def test_names_are_nouns_with_their_role() -> None:
    """``norm_backward``, not ``of_norm``; of methods only those in the list."""
    for path in FILES:
        defined = set(re.findall(r"\bdef (_?of_\w+)\(", text_of(path))) & METHODS_OF
        assert set(re.findall(r"(?<![.\w])(?:self\.)?(_?of_\w+)", text_of(path))) <= defined, path


# Options of Docker, git, mteval, nvcc, Slurm and Marian; those of our own commands are the commands' affair.
FOREIGN_OPTIONS = {
    "--shm-size", "--short", "--porcelain", "--untracked-files", "--international-tokenization", "--gpu-architecture",
    "--std", "--ptxas-options", "--mpi", "--task",
}  # fmt: skip


def test_a_library_names_settings_and_no_options_of_a_command() -> None:
    for path in FILES:
        constants = [node.value for node in nodes_of(path) if isinstance(node, ast.Constant)]
        text = "\n".join(value for value in constants if isinstance(value, str))
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))
        assert named <= FOREIGN_OPTIONS or module_of(path).startswith("cli."), path


# The three that are no operations on tensors, with the modules that define them.
OTHERS = {"adam": "optim", "clip": "optim", "random": "random"}
OPERATIONS = {path.stem for path in (ROOT / "autograd/ops").glob("*.py")} - {"__init__"} | set(OTHERS)
HELPERS = {  # files that kernels share
    "cpu": {
        "amx", "bfloat16", "common", "instruction_sets", "int8", "library", "options", "packed", "parallel", "philox",
    },
    "cuda": {
        "algorithms", "attention_long", "cached_attention", "check", "check_child", "common", "cublaslt", "driver",
        "epilogues", "library", "mma", "nvrtc", "philox", "products", "side_stream",
    },
}  # fmt: skip


@pytest.mark.parametrize("device", HELPERS)
def test_a_kernels_file_has_the_name_of_its_operations(device: str) -> None:
    files = [path for path in (ROOT / "autograd/kernels" / device).glob("[!_]*") if path.is_file()]
    assert {path.stem for path in files} - OPERATIONS == HELPERS[device]
    registering = {path.stem for path in files if ".kernel(" in path.read_text(encoding="utf-8")}
    assert not registering & HELPERS[device]


def test_an_operations_tests_have_its_name() -> None:
    """Without kernels the tests of every operation, which read ``op_cases.py``, are enough."""
    fused = (ROOT / "tests/autograd/test_fused_ops.py").read_text(encoding="utf-8")
    for name in OPERATIONS:
        has_kernels = any((ROOT / "autograd/kernels").glob(f"*/{name}.*"))
        has_tests = (ROOT / f"tests/autograd/test_{name}.py").exists() or f"ops.{name}(" in fused
        assert has_tests or not has_kernels, name
        assert (ROOT / f"autograd/{OTHERS.get(name, f'ops/{name}')}.py").exists(), name


# mpi4py's lower-case methods pickle what ranks of one run send each other; no file takes part in that.
UNPICKLING = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "code", "runpy"}
EVALUATING = {"eval", "exec", "compile", "__import__"}


def offences(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"line {node.lineno}: {name}" for name in named if name.partition(".")[0] in UNPICKLING)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in EVALUATING:
                yield f"line {node.lineno}: {node.func.id}"
            if any(k.arg == "allow_pickle" and ast.unparse(k.value) != "False" for k in node.keywords):
                yield f"line {node.lineno}: allow_pickle"


def test_nothing_is_unpickled_or_evaluated() -> None:
    """So no file that is read can run code."""
    found = {path: list(offences(nodes_of(path))) for path in [*FILES, *(ROOT / "benchmarks").rglob("*.py")]}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from pickle import loads", "import a, dill.b", "eval(x)", "y = exec(x)", "f(allow_pickle=True)"],
)
def test_what_would_be_an_offence_is_found(source: str) -> None:
    assert len(list(offences(ast.walk(ast.parse(source))))) == 1


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIME_LIMIT)


MODEL_LOSS = """
import numpy as np
from autograd import RandomStream, backward
from minitransformer import Batch, ModelConfig, Transformer
model = Transformer(ModelConfig(vocabulary_size=9, n_layers=1, d_model=4, d_ff=4, n_heads=2, d_k=2, d_v=2))
loss = model.loss(Batch.from_token_ids([[3, 4]], [[5]]), RandomStream(1))
backward(loss)
print(float(loss), float(np.abs(model.parameters.gradients).sum()))
"""
WITHOUT_KERNELS = """
import importlib.util as u
find_spec = u.find_spec
u.find_spec = lambda name, *more: None if name == "autograd.kernels" else find_spec(name, *more)
"""


def test_without_kernels_everything_gives_the_same() -> None:
    with_kernels, without = run_python(MODEL_LOSS), run_python(WITHOUT_KERNELS + MODEL_LOSS)
    assert with_kernels.returncode == without.returncode == 0, with_kernels.stderr + without.stderr
    loss_and_gradients = [[float(number) for number in run.stdout.split()] for run in (with_kernels, without)]
    assert loss_and_gradients[0] == pytest.approx(loss_and_gradients[1], rel=1e-6)  # sums of float32 in another order
    listing = "import sys\nprint('autograd.kernels' in sys.modules)"
    assert run_python(f"import autograd\n{listing}").stdout == "True\n"
    assert run_python(f"{WITHOUT_KERNELS}\nimport autograd\n{listing}").stdout == "False\n"


WITHOUT_EXTRAS = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("minitransformer.extras."):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
from minitransformer import DataConfig, ModelConfig, RunConfig, TrainingConfig, Translator, train
from minitransformer.training.flops import SQUARE
SQUARE["cpu"] = 64  # the device is measured after the training
data = DataConfig(raw=FOLDER, train_source=("t.en",), train_target=("t.de",), vocabulary_size=40)
model = ModelConfig(n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8)
config = RunConfig(run=FOLDER / "run", data=data, model=model, training=TrainingConfig(max_updates=2))
print(train(config, callbacks=[]).is_complete, len(Translator.load(FOLDER / "run").translate(["one two"])))
"""


def test_without_extras_the_core_trains_and_translates(tmp_path: Path) -> None:
    write_parallel_text(tmp_path, "t", 200, seed=1)
    run = run_python(f"from pathlib import Path\nFOLDER = Path({str(tmp_path)!r}){WITHOUT_EXTRAS}")
    assert run.stdout == "True 1\n", run.stderr
