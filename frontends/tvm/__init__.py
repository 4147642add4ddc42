"""Models compiled through Apache TVM: traced by calling them, scheduled by rules, run without Python between kernels.

model = xformer.frontends.tvm.compile(xformer.load("folder"), (1, 128), precision="int8")
model.embed(["one text", "another"])
"""

from xformer.frontends.tvm.model import CompiledModel, compile

__all__ = ["CompiledModel", "compile"]
