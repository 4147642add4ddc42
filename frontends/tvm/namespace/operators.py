"""Arrays' operators and methods, by the functions of the namespace."""

from collections.abc import Callable
from typing import Any

from xformer.frontends.tvm import dtypes, eager
from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.namespace import arithmetic, indexing, logic
from xformer.frontends.tvm.namespace.linear import matmul
from xformer.frontends.tvm.namespace.manipulation import contiguous, copied, matrix_transpose, permute_dims

BINARY = {
    "add": arithmetic.add,
    "sub": arithmetic.subtract,
    "mul": arithmetic.multiply,
    "truediv": arithmetic.divide,
    "floordiv": arithmetic.floor_divide,
    "mod": arithmetic.remainder,
    "pow": arithmetic.pow,
    "and": logic.bitwise_and,
    "or": logic.bitwise_or,
    "xor": logic.bitwise_xor,
    "lshift": logic.bitwise_left_shift,
    "rshift": logic.bitwise_right_shift,
    "matmul": matmul,
}
COMPARISONS = {
    "lt": logic.less,
    "le": logic.less_equal,
    "gt": logic.greater,
    "ge": logic.greater_equal,
    "eq": logic.equal,
    "ne": logic.not_equal,
}
UNARY = {"neg": arithmetic.negative, "pos": arithmetic.positive, "abs": arithmetic.abs, "invert": logic.bitwise_invert}


def _takes(other: Any) -> bool:
    return isinstance(other, Array | bool | int | float)


def _operator(function: Callable, swapped: bool = False) -> Callable[[Array, Any], Any]:
    def apply(self, other, /):
        if not _takes(other):
            return NotImplemented
        return function(other, self) if swapped else function(self, other)

    return apply


def _in_place(function: Callable) -> Callable[[Array, Any], Array]:
    def apply(self, other, /):
        if not _takes(other):
            return NotImplemented
        result = function(self, other)
        if (result.shape, result.dtype) != (self.shape, self.dtype):
            raise TypeError(f"{result.dtype} of shape {result.shape} does not go into {self.dtype} of shape {self.shape}")
        self.node, self.strides, self.offset = result.node, result.strides, result.offset
        return self

    return apply


def _dlpack(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    if dl_device not in (None, (1, 0)):
        raise BufferError(f"device {dl_device} is not the CPU")
    x = copied(self) if copy else contiguous(self)
    tensor = eager.known(x).node.tensor
    return (tensor if tuple(tensor.shape) == x.shape else tensor._create_view(x.shape)).__dlpack__()


def _index(self):
    if self.dtype not in dtypes.KINDS["integral"]:
        raise TypeError(f"an index is an integer, got {self.dtype}")
    return int(eager.item(self))


def _array(self, dtype=None, copy=None):
    found = eager.values(self)
    return found.astype(dtype) if dtype is not None and dtype != found.dtype else found.copy()


def _shown(self) -> str:
    if self.node.symbolic:
        return f"<traced {self.dtype}{list(self.shape)} from {self.node.name}>"
    return f"Array({eager.values(self)}, dtype={self.dtype})"


for _name, _function in BINARY.items():
    setattr(Array, f"__{_name}__", _operator(_function))
    setattr(Array, f"__r{_name}__", _operator(_function, swapped=True))
    setattr(Array, f"__i{_name}__", _in_place(_function))
for _name, _function in COMPARISONS.items():
    setattr(Array, f"__{_name}__", _operator(_function))
for _name, _one in UNARY.items():
    setattr(Array, f"__{_name}__", lambda self, f=_one: f(self))
METHODS = {
    "__getitem__": indexing.get,
    "__setitem__": indexing.put,
    "__hash__": object.__hash__,  # comparison gives arrays, as everywhere in the standard
    "__bool__": lambda self: bool(eager.item(self)),
    "__int__": lambda self: int(eager.item(self)),
    "__float__": lambda self: float(eager.item(self)),
    "__complex__": lambda self: complex(eager.item(self)),
    "__index__": _index,
    "__array__": _array,
    "__dlpack__": _dlpack,
    "__dlpack_device__": lambda self: (1, 0),
    "__repr__": _shown,
    "T": property(lambda self: permute_dims(self, (1, 0))),
    "mT": property(matrix_transpose),
}
for _name, _method in METHODS.items():
    setattr(Array, _name, _method)
