"""Operators that exchange the lanes of a vector, which TE has no way to write.

To TVM such an operator is a function of one element, which a loop of `LANES` elements in vectors makes one of a vector; there
it becomes a call of a function in LLVM's own language, which is put in its place. LLVM splits the vectors of a processor that
has shorter ones.
"""

from typing import Any

from tvm import tirx
from tvm.ir.op import _ffi_api, register_op_attr

LANES = 16  # of the vectors, whatever the processor's own length
PURE = 1  # TVM's CallEffectKind: the same for the same argument


def hadamard(x: Any, order: int) -> Any:
    """`order` neighbours of a float32 vector times the Hadamard matrix 1/2 - I of order 4, or its product with itself, of order 16."""
    return tirx.call_intrin("float32", f"tirx.{HADAMARD[order]}", x)


def code() -> str:
    """The functions in LLVM's language, for a kernel whose loops use operators."""
    return "\n".join(_function(name, order) for order, name in HADAMARD.items())


def _function(name: str, order: int) -> str:
    """Half the sum of four, less the one; then the same for the groups of four."""
    lines, x = [], "%x"
    for place, step in enumerate((1, 4)[: 1 if order == 4 else 2]):
        first, second, half, after = (f"%{part}{place}" for part in ("first", "second", "half", "after"))
        lines += [*_added(x, step, first), *_added(first, 2 * step, second)]
        lines += [f"{half} = fmul {VECTOR} {second}, {HALF}", f"{after} = fsub {VECTOR} {half}, {x}"]
        x = after
    body = "\n".join(f"  {line}" for line in (*lines, f"ret {VECTOR} {x}"))
    return f"define internal {VECTOR} @{name}({VECTOR} %x) alwaysinline {{\n{body}\n}}"


def _added(x: str, step: int, result: str) -> list[str]:
    """Each lane with the one whose number differs by `step` added to it."""
    lanes = ", ".join(f"i32 {lane ^ step}" for lane in range(LANES))
    other = f"shufflevector {VECTOR} {x}, {VECTOR} {x}, <{LANES} x i32> <{lanes}>"
    return [f"{result}.other = {other}", f"{result} = fadd {VECTOR} {x}, {result}.other"]


def _register(name: str) -> None:
    operator = f"tirx.{name}"
    _ffi_api.RegisterOp(operator, "exchanges the lanes of a vector")
    register_op_attr(operator, "TVectorizable", True)
    register_op_attr(operator, "TCallEffectKind", PURE)
    register_op_attr(operator, "TScriptPrinterName", name)
    tirx.register_intrin_lowering(operator, target="llvm", f=lambda op: tirx.call_pure_extern(op.ty, name, op.args[0]), level=99)


VECTOR = f"<{LANES} x float>"
HALF = f"<{', '.join(['float 5.000000e-01'] * LANES)}>"
HADAMARD = {4: "xformer_hadamard4", 16: "xformer_hadamard16"}  # by the order
for _name in HADAMARD.values():
    _register(_name)
