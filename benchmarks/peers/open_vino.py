"""OpenVINO: an exported graph; int8 by NNCF, of activations too in an encoder, of weights in a decoder."""

from pathlib import Path

import numpy as np
import openvino

from benchmarks.peers.loaded import Decoder, Encoder, Loaded
from xformer import machine

NARROW = "bf16 between"  # what is not int8 is bf16
HINTS = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}


def convert(role: str, source: Path, folder: Path) -> None:
    """Write fp32.xml and int8.xml."""
    from benchmarks.peers import openvino_graphs

    getattr(openvino_graphs, role)(source, folder / "fp32.xml", folder / "int8.xml")


def load(library: str, role: str, precision: str, variant: str, source: Path, folder: Path) -> Loaded:
    """The graph compiled for latency. Raises NotImplementedError where the CPU computes in another precision than was asked for."""
    hint = "bf16" if NARROW in variant else HINTS[precision]
    settings = {"INFERENCE_PRECISION_HINT": hint, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": machine.cores()["usable"]}
    if role == "decoder":
        settings["KV_CACHE_PRECISION"] = hint
    path = folder / ("int8.xml" if precision == "int8" else "fp32.xml")
    model = openvino.Core().compile_model(path, "CPU", settings)
    got = model.get_property("INFERENCE_PRECISION_HINT").to_string()
    if got != hint:
        raise NotImplementedError(f"OpenVINO computes in {got} on this CPU where {hint} was asked for")
    return _encoder(model) if role == "encoder" else _decoder(model)


def _encoder(model: openvino.CompiledModel) -> Encoder:
    def bind(ids, mask):
        request, feed = model.create_infer_request(), dict(enumerate((ids, mask, np.zeros_like(ids))))
        return lambda: request.infer(feed, share_inputs=True, share_outputs=True)[0]

    return Encoder(bind)


def _decoder(model: openvino.CompiledModel) -> Decoder:
    """Keys and values are state of the request."""
    request = model.create_infer_request()
    kind = model.input("beam_idx").get_element_type().to_dtype()

    def step(ids, start) -> np.ndarray:
        batch, length = ids.shape
        places = np.tile(np.arange(start, start + length, dtype=np.int64), (batch, 1))
        feed = {"input_ids": np.ascontiguousarray(ids), "position_ids": places, "beam_idx": np.arange(batch, dtype=kind)}
        return request.infer(feed, share_inputs=True, share_outputs=True)["logits"][:, -1]

    def first(ids) -> np.ndarray:
        request.reset_state()
        return step(ids, 0)

    def generate(ids: np.ndarray, count: int) -> np.ndarray:
        found = [first(ids).argmax(-1)]
        for index in range(count - 1):
            found.append(step(found[-1][:, None], ids.shape[1] + index).argmax(-1))
        return np.stack(found, 1)

    return Decoder(generate, lambda ids: first(ids).copy())
