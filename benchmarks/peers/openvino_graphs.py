"""The graphs that OpenVINO is given, exported from PyTorch."""

from pathlib import Path

import nncf
import numpy as np
import openvino
import torch
from openvino import opset13
from openvino._offline_transformations import apply_make_stateful_transformation

from benchmarks.peers import exportable, pytorch

LENGTHS = (16, 64, 128, 128, 256, 384)  # of the random texts that activations are calibrated on


def encoder(source: Path, fp32: Path, int8: Path) -> None:
    """Export and quantise: contractions in int8, activations by what a few random texts gave."""
    model = pytorch.bert(source)
    example = torch.ones(2, 8, dtype=torch.int64)
    graph = openvino.convert_model(exportable.Encoder(model, fused=True).eval(), example_input=(example, example, example * 0))
    openvino.save_model(graph, fp32, compress_to_fp16=False)
    names, draw, texts = [node.get_any_name() for node in graph.inputs], np.random.default_rng(1), []
    for length in LENGTHS:
        ids = draw.integers(1000, model.config.vocab_size, (1, length))
        texts.append(dict(zip(names, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True)))
    quantised = nncf.quantize(graph, nncf.Dataset(texts), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(texts))
    openvino.save_model(quantised, int8, compress_to_fp16=False)


def decoder(source: Path, fp32: Path, int8: Path) -> None:
    """Export with keys and values as state, and store weights in int8."""
    model = pytorch.gpt2(source)
    layers, heads = model.config.n_layer, model.config.n_head
    past = tuple(torch.zeros(2, heads, 3, model.config.n_embd // heads) for _ in range(2 * layers))
    ids = torch.ones(2, 4, dtype=torch.int64)
    graph = openvino.convert_model(exportable.Decoder(model).eval(), example_input=(ids, ids, torch.arange(2), *past))
    _name(graph, heads, past[0].shape[-1])
    apply_make_stateful_transformation(graph, {f"past.{index}": f"present.{index}" for index in range(2 * layers)})
    _start_empty(graph)
    openvino.save_model(graph, fp32, compress_to_fp16=False)
    compressed = nncf.compress_weights(graph, mode=nncf.CompressWeightsMode.INT8_ASYM)
    openvino.save_model(compressed, int8, compress_to_fp16=False)


def _name(graph: openvino.Model, heads: int, width: int) -> None:
    """Name what goes in and comes out, and leave batch and lengths open."""
    shapes = {"input_ids": [-1, -1], "position_ids": [-1, -1], "beam_idx": [-1]}
    names = [*shapes, *(f"past.{index}" for index in range(len(graph.inputs) - len(shapes)))]
    for name, node in zip(names, graph.inputs, strict=True):
        node.get_tensor().set_names({name})
        node.get_node().set_partial_shape(openvino.PartialShape(shapes.get(name, [-1, heads, -1, width])))
    for index, node in enumerate(graph.outputs):
        node.get_tensor().set_names({f"present.{index - 1}" if index else "logits"})
    graph.validate_nodes_and_infer_types()


def _start_empty(graph: openvino.Model) -> None:
    """State begins without tokens, for as many rows as there are."""
    batch = opset13.gather(opset13.shape_of(graph.input("beam_idx"), output_type="i64"), *(opset13.constant(x, np.int64) for x in ([0], 0)))
    for node in graph.get_ops():
        if node.get_type_name() == "ReadValue":
            extents = [side.get_length() if side.is_static else 0 for side in node.get_output_partial_shape(0)]
            shape = opset13.concat([batch, *(opset13.constant([extent], np.int64) for extent in extents[1:])], 0)
            node.set_arguments([opset13.broadcast(opset13.constant(0.0, np.float32), shape)])
    graph.validate_nodes_and_infer_types()
