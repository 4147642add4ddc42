"""The graphs that ONNX Runtime is given: an exported encoder that its optimiser fuses, a decoder of its fused operators.

The decoder's layout is that of onnxruntime-genai's builder for CPUs: GroupQueryAttention over keys and values in one buffer.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.fusion_options import FusionOptions

from benchmarks.peers import exportable, pytorch
from benchmarks.peers.onnx_runtime import INPUTS

MICROSOFT = "com.microsoft"
CONTRACTIONS = ["MatMul", "Attention", "Gemm"]


def encoder(source: Path, folder: Path, fp32: Path, int8: Path, channels: Path, blocks: Path) -> None:
    """Export, fuse and quantise; weights by block are for decoders."""
    model, raw = pytorch.bert(source), folder / "exported.onnx"
    example = torch.ones(2, 8, dtype=torch.int64)
    axes = {name: {0: "batch", 1: "length"} for name in (*INPUTS, "states")}
    torch.onnx.export(
        exportable.Encoder(model, fused=False).eval(),
        (example, example, example * 0),
        raw,
        input_names=list(INPUTS),
        output_names=["states"],
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )
    heads, width = model.config.num_attention_heads, model.config.hidden_size
    fused = optimizer.optimize_model(str(raw), "bert", heads, width, optimization_options=FusionOptions("bert"), opt_level=0)
    fused.save_model_to_file(str(fp32))
    raw.unlink()
    quantise(fp32, int8, CONTRACTIONS)
    quantise(fp32, channels, CONTRACTIONS, per_channel=True)


def quantise(source: Path, target: Path, operators: list[str], per_channel: bool = False) -> None:
    """Weights in int8, activations as they come."""
    typed = {"DefaultTensorType": TensorProto.FLOAT}  # of what the fused operators leave untyped
    quantize_dynamic(source, target, operators, weight_type=QuantType.QInt8, per_channel=per_channel, extra_options=typed)


def decoder(source: Path, folder: Path, fp32: Path, int8: Path, channels: Path, blocks: Path) -> None:
    """Build and quantise; weights by channel are for encoders."""
    onnx.save(Graph(pytorch.gpt2(source)).model(), fp32)
    quantise(fp32, int8, ["MatMul"])
    config = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True, accuracy_level=4, bits=8)  # 4: products in int8
    quantizer = MatMulNBitsQuantizer(onnx.load(fp32), bits=8, algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(str(blocks), False)


class Graph:
    """GPT-2, node by node."""

    def __init__(self, model: Any):
        self.config, self.body = model.config, model.transformer
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: Any) -> str:
        """An initialiser's name."""
        array = value.detach().numpy() if isinstance(value, torch.Tensor) else value
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), f"constant_{len(self.constants)}"))
        return self.constants[-1].name

    def node(self, operator: str, *inputs: str, outputs: Iterable[str] = (), domain: str = "", **attributes: Any) -> str:
        """The name of a node's first output."""
        name = f"{operator}_{len(self.nodes)}"
        names = list(outputs) or [name]
        self.nodes.append(helper.make_node(operator, inputs, names, name, domain=domain, **attributes))
        return names[0]

    def fused_norm(self, x: str, y: str, bias: torch.Tensor, norm: Any) -> tuple[str, str]:
        """The norm of x + y + bias, and that sum."""
        inputs = (x, y, self.constant(norm.weight), self.constant(norm.bias), self.constant(bias))
        count = len(self.nodes)
        outputs = (f"norm_{count}", "", "", f"sum_{count}")
        return self.node("SkipLayerNormalization", *inputs, outputs=outputs, domain=MICROSOFT, epsilon=norm.eps), outputs[-1]

    def attend(self, x: str, layer: Any, index: int) -> str:
        """Attention without the bias of its output layer."""
        joined = self.node("Add", self.node("MatMul", x, self.constant(layer.c_attn.weight)), self.constant(layer.c_attn.bias))
        past, present = (tuple(f"{where}.{index}.{part}" for part in ("key", "value")) for where in ("past_key_values", "present"))
        heads = {"num_heads": self.config.n_head, "kv_num_heads": self.config.n_head}
        inputs = (joined, "", "", *past, "seqlens_k", "total_len")
        y = self.node("GroupQueryAttention", *inputs, outputs=(f"attended_{index}", *present), domain=MICROSOFT, **heads)
        return self.node("MatMul", y, self.constant(layer.c_proj.weight))

    def model(self) -> onnx.ModelProto:
        """The whole: logits of the last place."""
        body, norm = self.body, self.body.h[0].ln_1
        tokens = self.node("Gather", self.constant(body.wte.weight), "input_ids")
        x = self.node("Add", tokens, self.node("Gather", self.constant(body.wpe.weight), "position_ids"))
        y = self.node("LayerNormalization", x, self.constant(norm.weight), self.constant(norm.bias), axis=-1, epsilon=norm.eps)
        for index, block in enumerate(body.h):
            y, x = self.fused_norm(x, self.attend(y, block.attn, index), block.attn.c_proj.bias, block.ln_2)
            up = self.node("MatMul", y, self.constant(block.mlp.c_fc.weight))
            hidden = self.node("FastGelu", up, self.constant(block.mlp.c_fc.bias), domain=MICROSOFT)
            down = self.node("MatMul", hidden, self.constant(block.mlp.c_proj.weight))
            last = index + 1 == len(body.h)
            y, x = self.fused_norm(x, down, block.mlp.c_proj.bias, body.ln_f if last else body.h[index + 1].ln_1)
        y = self.node("Gather", y, self.constant(np.array([-1], np.int64)), axis=1)
        self.node("MatMul", y, self.constant(body.wte.weight.T), outputs=["logits"])
        versions = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(self.graph(), opset_imports=versions, ir_version=9)

    def graph(self) -> onnx.GraphProto:
        """The nodes with their inputs and outputs."""
        c, value = self.config, helper.make_tensor_value_info
        memory = ["batch", c.n_head, "capacity", c.n_embd // c.n_head]
        names = [f"{index}.{part}" for index in range(c.n_layer) for part in ("key", "value")]
        integers = [value(name, TensorProto.INT64, ["batch", "length"]) for name in ("input_ids", "position_ids")]
        ends = [value("seqlens_k", TensorProto.INT32, ["batch"]), value("total_len", TensorProto.INT32, [])]
        past = [value(f"past_key_values.{name}", TensorProto.FLOAT, memory) for name in names]
        present = [value(f"present.{name}", TensorProto.FLOAT, memory) for name in names]
        logits = value("logits", TensorProto.FLOAT, ["batch", 1, c.vocab_size])
        return helper.make_graph(self.nodes, "gpt2", [*integers, *ends, *past], [logits, *present], self.constants)
