"""The blocks and models are one source: no library or dtype is named in it, and the same functions run on every namespace."""

import ast
import hashlib
import importlib
import sys
from pathlib import Path
from types import CodeType

import numpy as np
import pytest

import xformer
from xformer import blocks, models
from xformer.backends import NAMESPACES
from xformer.models import bert, gpt2
from xformer.precision import PRECISIONS

MODULES = [blocks, *(importlib.import_module(f"xformer.models.{name}") for name in models.available())]
FILES = {Path(module.__file__): module for module in MODULES}
LIBRARIES = {"numpy", "ml_dtypes", "jax", "jaxlib", "torch", "cupy", "tvm", "equinox", *NAMESPACES}
DTYPES = {f"{kind}{size}" for kind in ("float", "int", "uint", "bfloat") for size in (8, 16, 32, 64)} | set(PRECISIONS)
TELLS = {"dtype", "device", "operand", "accumulator", "name", "__name__", "__module__", "__class__"}  # what a branch could ask


# ------------------------------------------------------------------------------------------------------- what the source says
def violations(source: str) -> list[str]:
    """What breaks the rule: an import of a library, a dtype by name, a branch on a library, a dtype or a precision."""
    tree = ast.parse(source)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found += [f"line {node.lineno}: import of {name}" for name in names if name.split(".")[0] in LIBRARIES]
        elif isinstance(node, ast.Attribute) and node.attr in DTYPES:
            found.append(f"line {node.lineno}: dtype {node.attr}")
        elif isinstance(node, ast.Constant) and node.value in LIBRARIES | DTYPES:
            found.append(f"line {node.lineno}: the name {node.value!r}")
        elif isinstance(node, ast.Name) and node.id in LIBRARIES | {name.upper() for name in PRECISIONS}:
            found.append(f"line {node.lineno}: {node.id}")
        for test in conditions(node):
            found += [f"line {test.lineno}: branch on {what}" for what in asked(test)]
    return found


def conditions(node: ast.AST) -> list[ast.expr]:
    """The expressions that decide which way `node` goes."""
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        return [node.test]
    if isinstance(node, ast.Match):
        return [node.subject]
    if isinstance(node, ast.BoolOp):
        return node.values
    return list(node.ifs) if isinstance(node, ast.comprehension) else []


def asked(test: ast.expr) -> list[str]:
    """What a condition asks of an array, a namespace or a precision: all that it may not."""
    found = [f".{node.attr}" for node in ast.walk(test) if isinstance(node, ast.Attribute) and node.attr in TELLS]
    for call in (node for node in ast.walk(test) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        if call.func.id in ("hasattr", "type") or (call.func.id == "isinstance" and not _of_a_tree(call.args[1])):
            found.append(ast.unparse(call))
    return found


def _of_a_tree(kind: ast.expr) -> bool:
    """Whether a class is a node of the parameter trees: those may be told apart."""
    return isinstance(kind, ast.Name) and any(
        kind.id == node.__name__ for node in xformer.params.NODES if node.__module__.startswith("xformer.")
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_library_and_no_dtype_is_named(path):
    assert violations(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np",
        "from jax import lax",
        "if x.dtype == y: pass",
        "y = a if precision.name == 'other' else b",
        "x = xp.astype(x, xp.float32)",
        "y = ops.dtype(xp, 'bfloat16')",
        "if isinstance(x, Array): pass",
        "if hasattr(xp, 'erf'): pass",
        "y = [a for a in b if a.device]",
        "match xp.__name__:\n    case 'other': pass",
        "precision is INT8",
        "y = precision.operand and z",
    ],
)
def test_a_violation_is_found(source):
    assert violations(source)


# ----------------------------------------------------------------------------------------------------------------- what ran
def compiled_from(path: Path) -> dict[str, CodeType]:
    """The code of every function in a file, by qualified name, compiled afresh from its text."""
    found, waiting = {}, [compile(path.read_text(), str(path), "exec")]
    while waiting:
        inner = [constant for constant in waiting.pop().co_consts if isinstance(constant, CodeType)]
        found |= {code.co_qualname: code for code in inner}
        waiting += inner
    return found


def digest(codes) -> str:
    """A hash over functions: what they execute, by name."""
    text = repr(sorted((code.co_filename, code.co_qualname, code.co_code, code.co_names) for code in codes))
    return hashlib.sha256(text.encode()).hexdigest()


def what_ran(function) -> set[CodeType]:
    """The code objects of the block and model files that `function()` executed."""
    files, ran = {str(path) for path in FILES}, set()

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename in files:
            ran.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return ran


def everything(namespace: str, precision: str) -> None:
    """Every function of the blocks and models that computes: both models, all heads, with and without a cache."""
    tokens = np.array([[3, 4, 5], [6, 7, 0]])
    mask = tokens > 0
    encoder = xformer.init(SMALL["bert"], 0, namespace, precision)
    encoder.logits(tokens, mask, np.zeros_like(tokens))
    encoder.pool(tokens, mask)
    encoder._run("embed", *encoder._inputs(tokens, mask, None))
    decoder = xformer.init(SMALL["gpt2"], 0, namespace, precision)
    decoder(tokens, mask)
    decoder.generate(tokens, 2, mask=mask)


SMALL = {
    "bert": xformer.config.Config("bert", 11, 8, 8, 1, 2, 12, "gelu", 1e-12, 2, pooler=True, head=True),
    "gpt2": xformer.config.Config("gpt2", 11, 8, 8, 1, 2, 12, "gelu_new", 1e-5),
}
COMPUTE = {
    blocks: ("encoder", "decoder", "attend", "attention", "feed_forward", "norm", "split", "merge", "embed"),
    bert: ("forward", "embed", "pool", "logits"),
    gpt2: ("forward", "prefill", "decode", "hidden", "logits"),
}


def test_the_same_functions_ran_on_every_namespace_and_in_every_precision(request, figure):
    """Not equal ones: the very objects. What they execute is what the files on disk say."""
    from conftest import CHOSEN

    namespaces = request.config.stash[CHOSEN]
    cells = [(name, kind) for name in namespaces for kind in (PRECISIONS if name == "numpy" else ("fp32", "int8"))]
    ran = {cell: what_ran(lambda cell=cell: everything(*cell)) for cell in cells}
    on_disk = {code for path in FILES for code in compiled_from(path).values()}
    for cell, codes in ran.items():
        missing = [
            f"{module.__name__}.{name}"
            for module, names in COMPUTE.items()
            for name in names
            if getattr(module, name).__code__ not in codes
        ]
        assert not missing, f"{cell}: did not run"
        assert {id(code) for code in codes} == {id(code) for code in ran[cells[0]]}, cell
        assert codes <= on_disk, cell
    assert {digest(codes) for codes in ran.values()} == {digest(on_disk & ran[cells[0]])}
    figure(f"one source of blocks and models, sha256 {digest(on_disk)[:16]}, ran on", ", ".join(namespaces))
