"""Compiles one cell after another in a process of its own: a line of JSON in, a line of JSON out.

`python -m benchmarks.ahead.worker` wants JAX_PLATFORMS=cpu: the process uses no accelerator, only its compiler.
"""

import dataclasses
import re
import time
from collections import Counter
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from benchmarks import workloads
from benchmarks.ahead import chips, count, pool
from benchmarks.workloads import NEW, Workload
from xformer.frontends import jax as frontend
from xformer.frontends.jax import sharding, trees
from xformer.precision import PRECISIONS

FUNCTIONS = {"encode": "forward", "prefill": "prefill", "decode": "greedy"}  # a decode's program has its prefill in it
INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.$-]+) = \(?(\w+)\[.*? ([a-z][a-z0-9-]*)\((.*?)\)(?:,|$)")
KERNEL = re.compile(r'custom_call_target="__(cublas|cudnn)')


def compiled(chip: str, devices: int, precision: str, model: str, kind: str, batch: int, length: int) -> dict[str, Any]:
    """What a compiler makes of one cell: seconds, operand types, memory of a device in bytes, collectives; and our own count."""
    workload, target, chosen = Workload(workloads.preset(model), kind, batch, length), chips.CHIPS[chip], PRECISIONS[precision]
    work = count.work(workload, chosen, devices)
    found = {"operations": work.operations, "bytes": work.bytes, "estimate": count.seconds(work, target)}
    start = time.perf_counter()
    program = lowered(workload, chosen, mesh(target, devices)).compile()
    found["compile"] = time.perf_counter() - start
    memory, text = program.memory_analysis(), program.as_text()
    found["memory"] = {
        "arguments": memory.argument_size_in_bytes,
        "results": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "temporary": memory.temp_size_in_bytes,
    }
    return found | {"operands": dict(operands(text)), "collectives": sharding.collectives(program)}


def mesh(chip: chips.Chip, devices: int) -> Mesh:
    """The first `devices` of such chips, none of which need to be here, for tensor parallelism."""
    there = topologies.get_topology_desc(platform=chip.platform, **chip.topology).devices[:devices]
    return Mesh(np.array(there).reshape(1, devices), ("data", "tensor"), axis_types=(AxisType.Auto, AxisType.Auto))


def lowered(workload: Workload, precision: Any, on: Mesh) -> jax.stages.Lowered:
    """The workload's program for these devices, from shapes alone."""
    config = workload.subject.config
    tree = stacked(trees.prepared(config, precision), on)
    whole, heads = NamedSharding(on, PartitionSpec()), NamedSharding(on, PartitionSpec(None, "tensor"))
    capacity = {"encode": None, "prefill": workload.length, "decode": workload.length + NEW}[workload.kind]
    return frontend.lower(
        FUNCTIONS[workload.kind],
        config,
        precision,
        workload.batch,
        workload.length,
        capacity,
        tree,
        lambda argument: heads if argument == "memory" else whole,
    )


def stacked(tree: Any, on: Mesh) -> Any:
    """The shapes of parameters with their layers stacked, so that each program compiles one of them, and where they go."""

    def shape(leaf, where, *more):
        where = NamedSharding(on, PartitionSpec(*(None for _ in more), *where.spec))
        return jax.ShapeDtypeStruct((*more, *leaf.shape), leaf.dtype, sharding=where)

    places = sharding.shardings(tree, on)
    depth = len(tree.layers)
    block = jax.tree.map(lambda leaf, where: shape(leaf, where, depth), tree.layers[0], places.layers[0])
    return dataclasses.replace(jax.tree.map(shape, tree, places), layers=frontend.Stacked(block))


def operands(text: str) -> Counter:
    """How many contractions of which types stand in a compiled program: {"s8 x s8 -> s32": 97}. One in a loop counts once.

    XLA calls some of them convolutions, and some are calls of a library's kernel.
    """
    types: dict[str, str] = {}
    found = []
    for line in text.splitlines():
        if match := INSTRUCTION.match(line):
            name, result, operation, arguments = match.groups()
            types[name] = result
            if operation in ("dot", "convolution") or (operation == "custom-call" and KERNEL.search(line)):
                found.append((re.findall(r"%([\w.$-]+)", arguments)[:2], result))
    return Counter(f"{' x '.join(types[name] for name in names)} -> {result}" for names, result in found)


if __name__ == "__main__":
    pool.serve(compiled)
