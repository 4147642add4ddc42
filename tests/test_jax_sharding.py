"""Data and tensor parallelism on eight virtual devices, in a process of their own: the count is fixed before JAX starts."""

import json
import os
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
tokens = np.random.default_rng(0).integers(0, 500, (4, 12)).astype(np.int32)
mask = np.arange(12) < np.array([[12], [7], [3], [12]])
for preset in ("bert-tiny", "gpt2-tiny"):
    for precision in ("fp32", "bf16", "int8"):
        model = xformer.init(preset, 1, "jax", precision)
        wanted = np.asarray(compile(model)(tokens, mask))
        for data, tensor in ((2, 4), (8, 1), (4, 2)):
            spread = sharding.spread(model, sharding.mesh(data, tensor))
            key = f"{preset} {precision} {data} {tensor}"
            result["error"][key] = float(abs(np.asarray(spread(tokens, mask)) - wanted).max())
    forward = jit(functools.partial(model.functions.forward, config=model.config, precision=xformer.FP32))
    for data, tensor in ((1, 4), (2, 4)):
        spread = sharding.spread(xformer.init(preset, 1, "jax"), sharding.mesh(data, tensor))
        compiled = forward.func.lower(spread.params, spread._array(tokens), spread._array(mask), **forward.keywords).compile()
        result["collectives"][f"{preset} {data} {tensor}"] = sharding.collectives(compiled)
host = xformer.init("gpt2-tiny", 1)
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
    assert {key: error for key, error in result["error"].items() if error > limits[key.split()[1]]} == {}


def test_a_weight_is_held_in_pieces(result):
    assert result["shard"] == [64, 64]  # of 256 rows over four devices


def test_two_all_reduces_a_layer_and_nothing_else(result):
    two_layers = {"all-reduce": 4}
    assert result["collectives"] == dict.fromkeys(("bert-tiny 1 4", "bert-tiny 2 4", "gpt2-tiny 1 4", "gpt2-tiny 2 4"), two_layers)


def test_generation_gives_the_same_tokens(result):
    assert all(result["tokens"].values())


def test_too_few_devices_are_refused():
    with pytest.raises(ValueError, match="a mesh of 64 x 64 devices: there are"):
        sharding.mesh(64, 64)


def test_every_entry_of_the_table_names_a_parameter():
    from fnmatch import fnmatchcase

    from xformer import params

    paths = list(params.leaves(xformer.spec("bert-tiny")))
    assert all(any(fnmatchcase(path, pattern) for path in paths) for pattern in sharding.TABLE)
