"""The structure that DESIGN asks for: who imports whom, what an import costs, one list for each concept."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from xformer.precision import PRECISIONS

ROOT = Path(__file__).parent.parent
PACKAGES = {"xformer": ROOT / "xformer", "xformer.frontends": ROOT / "frontends"}


def modules():
    """Every module of the wheel by its dotted name."""
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            yield ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts))), path


def imported(path):
    """What a file imports when it is imported: functions and TYPE_CHECKING blocks left out."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


LAYERS = [  # from the bottom up: a module imports only from its own row and the rows above
    {"annotations", "backends"},
    {"ops", "params"},
    {"config", "padding", "precision"},
    {"cache", "blocks", "names", "storage", "checks", "sampling"},
    {"models", "checkpoint", "tokenizer"},
    {"generate"},
    {"model"},
    {"build"},
]


def test_imports_point_one_way():
    level = {name: index for index, names in enumerate(LAYERS) for name in names}
    known = {name for name, _ in modules()}
    for name, path in modules():
        parts = name.split(".")
        if parts[:2] == ["xformer", "backends"] or len(parts) < 2 or parts[1] not in level:
            continue
        for target in set(imported(path)) & known:
            other = target.split(".")
            assert other[1:2] != ["frontends"], f"{name} imports {target}"
            if len(other) > 1 and other[1] in level:
                assert level[other[1]] <= level[parts[1]], f"{name} imports {target}"


def test_only_backends_name_an_array_library():
    libraries = {"numpy", "ml_dtypes", "jax", "torch", "cupy", "tvm", "equinox", "array_api_strict"}
    for name, path in modules():
        if name.startswith(("xformer.blocks", "xformer.models", "xformer.ops", "xformer.precision", "xformer.cache")):
            found = {target.split(".")[0] for target in imported(path)} & libraries
            assert not found, f"{name} imports {found}"


def test_importing_xformer_loads_no_compiler_and_no_optional_library():
    code = "import sys, xformer; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    allowed = {"numpy", "ml_dtypes", "array_api_compat", "xformer"}
    unexpected = {"jax", "torch", "cupy", "tvm", "equinox", "tokenizers", "safetensors", "typer", "rich", "jaxtyping"} & loaded
    assert allowed <= loaded
    assert not unexpected


def test_the_packages_of_the_wheel_are_the_folders():
    declared = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {name for name, path in modules() if path.name == "__init__.py"}
    assert declared == folders


def test_backend_files_stay_small_and_name_known_libraries():
    from xformer.backends import NAMESPACES

    for path in (ROOT / "xformer" / "backends").glob("[!_]*.py"):
        assert path.stem in NAMESPACES
        assert len(path.read_text().splitlines()) <= 48


def test_the_sessions_know_the_precisions():
    tree = ast.parse((ROOT / "noxfile.py").read_text())
    values = {
        node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert ast.literal_eval(values["PRECISIONS"]) == tuple(PRECISIONS)


@pytest.mark.parametrize("path", sorted((ROOT / "xformer").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_public_name_is_documented(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module):
            assert ast.get_docstring(node), path
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{path}: {node.name}"


def test_golden_data_stays_small():
    assert (
        sum(path.stat().st_size for path in (ROOT / "tests").rglob("*") if path.suffix in {".safetensors", ".json", ".npz", ".bin"})
        < 1_000_000
    )
