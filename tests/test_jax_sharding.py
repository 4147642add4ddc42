"""Data, tensor and sequence parallelism on eight virtual devices, of one process and of two: the count is fixed before JAX starts."""

import json
import os
import socket
import subprocess
import sys

import pytest

import xformer
from xformer.frontends.jax import sharding

SCRIPT = """
import json, functools
import jax, jax.numpy as jnp, numpy as np
import xformer
from xformer.frontends.jax import compile, jit, sharding

result = {"devices": jax.device_count(), "error": {}, "collectives": {}, "tokens": {}}
tokens = np.random.default_rng(0).integers(0, 500, (8, 16)).astype(np.int32)
mask = np.arange(16) < np.array([[16], [7], [3], [16]] * 2)
for preset in ("bert-tiny", "gpt2-tiny"):
    for precision in ("fp32", "bf16", "int8"):
        meshes = [(2, 4, 1)] + [(1, 4, 1), (8, 1, 1), (1, 1, 8), (2, 2, 2)] * (precision == "fp32")
        model = xformer.init(preset, 1, "jax", precision)
        wanted = np.asarray(compile(model)(tokens, mask))
        forward = jit(functools.partial(model.functions.forward, config=model.config, precision=model.precision))
        for data, tensor, sequence in meshes:
            spread = sharding.spread(model, sharding.mesh(data, tensor, sequence))
            arguments = spread.params, spread._array(tokens), spread._array(mask)
            compiled = forward.func.lower(*arguments, **forward.keywords).compile()
            key = f"{precision} {preset} {data} x {sequence} x {tensor}"
            result["collectives"][key] = sharding.collectives(compiled)
            result["error"][key] = float(abs(np.asarray(compiled(*arguments)) - wanted).max())
host = xformer.init("gpt2-tiny", 1)
long = sharding.spread(host, sharding.mesh(1, 2, 4))
result["tokens"]["sequence"] = long.generate([[1, 2, 3], [4, 5]], 9) == host.generate([[1, 2, 3], [4, 5]], 9)
spread = sharding.spread(host, sharding.mesh(2, 4))
for options in ({}, {"temperature": 1.0, "seed": 3}):
    result["tokens"][str(options)] = spread.generate([[1, 2, 3], [4, 5]], 9, **options) == host.generate([[1, 2, 3], [4, 5]], 9, **options)
shape = spread.params.layers[0].up.weight.addressable_shards[0].data.shape
print(json.dumps(result | {"shard": shape}))
"""


@pytest.fixture(scope="module")
def result():
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT], env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_every_mesh_gives_the_numbers_of_one_device(result):
    assert result["devices"] == 8
    limits = {"fp32": 1e-5, "bf16": 5e-3, "int8": 1e-2}  # sums in another order may move an integer by one
    assert {key: error for key, error in result["error"].items() if error > limits[key.split()[0]]} == {}


def test_a_weight_is_held_in_pieces(result):
    assert result["shard"] == [64, 64]  # of 256 rows over four devices


def test_tensor_parallelism_takes_two_all_reduces_a_layer_and_nothing_else(result, figure):
    found = {key.removeprefix("fp32 "): counts for key, counts in result["collectives"].items() if key.startswith("fp32")}
    for preset in ("bert-tiny", "gpt2-tiny"):
        assert found[f"{preset} 1 x 1 x 4"] == found[f"{preset} 2 x 1 x 4"] == {"all-reduce": 4}
    for key, counts in found.items():
        figure(f"all-reduces a layer, data x sequence x tensor, {key}", str(counts.get("all-reduce", 0) / 2))


def test_data_parallelism_takes_none(result):
    assert result["collectives"]["fp32 bert-tiny 8 x 1 x 1"] == result["collectives"]["fp32 gpt2-tiny 8 x 1 x 1"] == {}


def test_sequence_parallelism_takes_no_more_than_three_all_reduces_a_layer(result):
    for preset in ("bert-tiny", "gpt2-tiny"):
        assert result["collectives"][f"fp32 {preset} 1 x 8 x 1"]["all-reduce"] <= 3 * 2 + 1  # one for the places of the tokens


def test_generation_gives_the_same_tokens(result):
    assert all(result["tokens"].values())


HOST = """
import json, sys
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[1]))
import numpy as np
import xformer
from xformer.frontends.jax import sharding

tokens = np.random.default_rng(0).integers(0, 500, (4, 12)).astype(np.int32)
model, mesh = xformer.init("gpt2-tiny", 1), sharding.mesh(2, 2)
spread = sharding.spread(model, mesh)
prompts = [[1, 2, 3], [4, 5]]
with open(sys.argv[3], "w") as file:
    json.dump({
        "processes": jax.process_count(),
        "devices": sorted(device.process_index for device in mesh.devices.flat),
        "error": float(abs(sharding.gather(spread(tokens)) - model(tokens)).max()),
        "greedy": spread.generate(prompts, 5) == model.generate(prompts, 5),
        "sampled": spread.generate(prompts, 5, temperature=1.0, seed=3) == model.generate(prompts, 5, temperature=1.0, seed=3),
    }, file)
"""


def test_two_hosts_give_the_numbers_and_the_tokens_of_one_device(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    files = [tmp_path / "0.json", tmp_path / "1.json"]
    commands = [[sys.executable, "-W", "error", "-c", HOST, str(index), address, str(file)] for index, file in enumerate(files)]
    hosts = [
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for command in commands
    ]
    try:
        errors = [host.communicate(timeout=120)[1] for host in hosts]
    finally:
        for host in hosts:
            host.kill()
    assert [host.returncode for host in hosts] == [0, 0], errors[0][-2000:] + errors[1][-2000:]
    for file in files:
        found = json.loads(file.read_text())
        assert found.pop("error") <= 1e-5
        assert found == {"processes": 2, "devices": [0, 0, 1, 1], "greedy": True, "sampled": True}


def test_too_few_devices_are_refused():
    with pytest.raises(ValueError, match="a mesh of 64 x 1 x 64 devices: there are"):
        sharding.mesh(64, 64)


def test_every_entry_of_the_table_names_a_parameter():
    from fnmatch import fnmatchcase

    from xformer import params

    paths = list(params.leaves(xformer.spec("bert-tiny")))
    assert all(any(fnmatchcase(path, pattern) for path in paths) for pattern in sharding.TABLE)
