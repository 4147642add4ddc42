"""What compiled models keep in memory: the packed weights, once, and nothing that they were made from."""

import gc
import sys
import weakref

import pytest

import xformer
from benchmarks import footprint
from xformer.frontends.tvm import compile

SIZES = xformer.config.Config("bert", 4096, 128, 512, 4, 8, 2048, "gelu", 1e-12, token_types=2)  # 59 MB in fp32


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_loading_and_running_takes_at_most_1_3_times_the_packed_weights(precision, tmp_path, figure):
    compile(xformer.init(SIZES), (1, 16), precision=precision).save(tmp_path)
    found = footprint.fresh("loaded", str(tmp_path), 1, 16, 1)
    figure(f"memory of a compiled model in {precision}, over its packed weights", found["growth"] / found["weights"])
    assert found["growth"] <= 1.3 * found["weights"]


def test_weights_are_kept_packed_and_not_as_they_came(precision):
    model = xformer.init("bert-tiny")
    weights = [weakref.ref(layer.up.weight) for layer in model.params.layers]
    compiled = compile(model, (1, 16), precision=precision)
    del model
    gc.collect()
    assert [weight() for weight in weights] == [None, None]
    assert compiled([[1, 2, 3]]).shape == (1, 3, 64)
