"""Parameter trees: paths, mapping, specs."""

import numpy as np
import pytest

import xformer
from xformer import params
from xformer.blocks import Linear, Norm
from xformer.config import PRESETS, Config
from xformer.params import Spec


def test_paths_name_the_leaves_in_order():
    tree = (Linear(np.zeros((2, 3)), None), Norm(np.ones(3), np.zeros(3)))
    assert list(params.leaves(tree)) == ["0.weight", "1.scale", "1.bias"]


def test_map_keeps_the_structure_and_none():
    tree = (Linear(np.zeros((2, 3)), None), None)
    mapped = params.map(lambda path, leaf: path, tree)
    assert mapped[0].weight == "0.weight"
    assert mapped[0].bias is None
    assert mapped[1] is None


def test_map_stops_at_the_classes_it_is_given():
    tree = (Linear(np.zeros((2, 3))), Norm(np.ones(3), np.zeros(3)))
    seen = params.map(lambda path, leaf: type(leaf).__name__, tree, at=(Linear,))
    assert seen[0] == "Linear"
    assert seen[1].scale == "ndarray"


def test_a_node_cannot_be_changed_and_compares_by_identity():
    norm = Norm(np.ones(3), np.zeros(3))
    with pytest.raises(AttributeError):
        norm.scale = None
    assert norm != Norm(norm.scale, norm.bias)


def test_later_nodes_reach_the_listeners(monkeypatch):
    monkeypatch.setattr(params, "NODES", list(params.NODES))
    monkeypatch.setattr(params, "_listeners", [])
    seen = []
    params.on_node(seen.append)
    assert Linear in seen

    @params.node
    class Later:
        weight: object

    assert seen[-1] is Later


# Published sizes: Devlin et al. 2018 (with pooler), Radford et al. 2019; the counts are those of the released checkpoints.
SIZES = {
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
}


@pytest.mark.parametrize("preset", SIZES)
def test_every_size_is_known_without_memory(preset):
    tree = xformer.spec(preset)
    assert params.count(tree) == SIZES[preset]
    assert all(isinstance(leaf, Spec) for leaf in params.leaves(tree).values())


def test_unknown_presets_are_named():
    with pytest.raises(ValueError, match="unknown preset 'gpt5'; known: bert-base"):
        xformer.spec("gpt5")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 5}, "width 64 is not a multiple of heads 5"),
        ({"layers": 0}, "layers must be a positive integer, got 0"),
        ({"vocab_size": 2.5}, "vocab_size must be a positive integer, got 2.5"),
        ({"activation": "mish"}, "unknown activation 'mish'; known: gelu, gelu_new"),
        ({"eps": 0.0}, "eps must be a number between 0 and 1, got 0.0"),
        ({"eps": float("nan")}, "eps must be"),
    ],
)
def test_a_config_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**{**vars(PRESETS["bert-tiny"]), **changes})
