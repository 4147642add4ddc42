"""ONNX Runtime: graphs of its fused operators, int8 by its own dynamic quantisation."""

from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.peers.loaded import Decoder, Encoder, Loaded
from benchmarks.peers.points import PROMPT
from benchmarks.workloads import NEW
from xformer import machine

FILES = {  # by precision and variant
    ("fp32", ""): "fp32.onnx",
    ("int8", "dynamic"): "int8.onnx",
    ("int8", "dynamic per channel"): "int8-channels.onnx",
    ("int8", "weights by block"): "int8-blocks.onnx",
}
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
CAPACITY = PROMPT + NEW


def convert(role: str, source: Path, folder: Path) -> None:
    """Write the graphs in every precision."""
    from benchmarks.peers import onnx_graphs

    getattr(onnx_graphs, role)(source, folder, *(folder / name for name in FILES.values()))


def load(library: str, role: str, precision: str, variant: str, source: Path, folder: Path) -> Loaded:
    """A session on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = machine.cores()["usable"]
    path = str(folder / FILES[precision, variant])
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return _encoder(session) if role == "encoder" else _decoder(session)


def _encoder(session: onnxruntime.InferenceSession) -> Encoder:
    types = {node.name: np.int32 if "int32" in node.type else np.int64 for node in session.get_inputs()}

    def bind(ids, mask):
        inputs = zip(INPUTS, (ids, mask, np.zeros_like(ids)), strict=True)
        feed = {name: value.astype(types[name]) for name, value in inputs if name in types}
        return lambda: session.run(None, feed)[0]

    return Encoder(bind)


def _decoder(session: onnxruntime.InferenceSession) -> Decoder:
    """Keys and values stay in buffers of fixed capacity, which the session reads and writes."""
    shape = next(node.shape for node in session.get_inputs() if node.name.startswith("past"))
    caches: dict[int, list[onnxruntime.OrtValue]] = {}

    def step(binding, ids, start) -> np.ndarray:
        batch, length = ids.shape
        places = np.tile(np.arange(start, start + length, dtype=np.int64), (batch, 1))
        ends = {"seqlens_k": np.full(batch, start + length - 1, np.int32), "total_len": np.array(start + length, np.int32)}
        feed = {"input_ids": np.ascontiguousarray(ids), "position_ids": places, **ends}  # alive until the run: a binding only points there
        for name, value in feed.items():
            binding.bind_cpu_input(name, value)
        binding.bind_output("logits", "cpu")
        session.run_with_iobinding(binding)
        return binding.get_outputs()[-1].numpy()[:, -1]

    def bound(batch) -> onnxruntime.IOBinding:
        names = [node.name for node in session.get_inputs() if node.name.startswith("past")]
        if batch not in caches:
            empty = (np.zeros((batch, shape[1], CAPACITY, shape[3]), np.float32) for _ in names)  # a value is the array's own memory
            caches[batch] = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in empty]
        binding = session.io_binding()
        for name, cache in zip(names, caches[batch], strict=True):
            binding.bind_ortvalue_input(name, cache)
            binding.bind_ortvalue_output(name.replace("past_key_values", "present"), cache)
        return binding

    def generate(ids: np.ndarray, count: int) -> np.ndarray:
        binding, length = bound(len(ids)), ids.shape[1]
        found = [step(binding, ids, 0).argmax(-1)]
        for index in range(count - 1):
            found.append(step(binding, found[-1][:, None], length + index).argmax(-1))
        return np.stack(found, 1)

    return Decoder(generate, lambda ids: step(bound(len(ids)), ids, 0))
