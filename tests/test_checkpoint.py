"""Hugging Face folders in and out, and what is said about those that do not fit."""

import json

import numpy as np
import pytest
from compare import bits, relative
from safetensors.numpy import load_file, save_file

import xformer
from xformer import checkpoint, params

BERT, GPT2 = "bert-tiny", "gpt2-tiny"


@pytest.fixture
def folder(tmp_path):
    """A function that writes a preset as a folder, its tensors and config edited on the way."""

    def write(preset, tensors=lambda tensors: tensors, config=lambda config: config, precision="fp32"):
        xformer.init(preset, seed=3, precision=precision).save(tmp_path)
        save_file(tensors(load_file(tmp_path / "model.safetensors")), tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(json.dumps(config(json.loads((tmp_path / "config.json").read_text()))))
        return tmp_path

    return write


def same(a, b):
    a, b = params.leaves(a), params.leaves(b)
    assert a.keys() == b.keys()
    for path in a:
        np.testing.assert_array_equal(bits(a[path]), bits(b[path]), err_msg=path)


@pytest.mark.parametrize("preset", [BERT, GPT2])
@pytest.mark.parametrize("prefix", ["", "bert.", "transformer."])
def test_prefixes(folder, preset, prefix):
    if prefix and not preset.startswith({"bert.": "bert", "transformer.": "gpt2"}[prefix]):
        with pytest.raises(ValueError, match="do not fit the config"):
            checkpoint.read(folder(preset, lambda tensors: {prefix + name: tensor for name, tensor in tensors.items()}))
        return
    path = folder(preset, lambda tensors: {prefix + name: tensor for name, tensor in tensors.items()})
    expected = xformer.init(preset, seed=3)
    found = xformer.load(path)
    assert found.config == expected.config
    same(found.params, expected.params)


def test_every_mismatch_is_in_one_error(folder):
    def edit(tensors):
        del tensors["h.0.ln_1.weight"], tensors["wpe.weight"]
        tensors["h.1.mlp.c_fc.weight"] = np.zeros((3, 5), np.float32)
        tensors["h.1.mlp.c_fc.bias"] = np.zeros(256, np.int32)
        tensors["ln_f.bias"][7] = np.nan
        tensors["h.0.ln_2.bias"][0] = np.inf
        return tensors | {"surplus": np.zeros(2, np.float32)}

    with pytest.raises(ValueError, match="7 tensors do not fit the config") as caught:
        checkpoint.read(folder(GPT2, edit))
    for line in (
        "missing h.0.ln_1.weight (64,)",
        "missing wpe.weight (128, 64)",
        "h.1.mlp.c_fc.weight has shape (3, 5), the config asks for (64, 256)",
        "h.1.mlp.c_fc.bias has dtype int32, expected float32",
        "ln_f.bias holds NaN, infinity, or a number too large for fp32",
        "h.0.ln_2.bias holds NaN, infinity, or a number too large for fp32",
        "unexpected surplus (2,)",
    ):
        assert line in str(caught.value)


def test_buffers_and_second_copies_of_tied_tables_are_left_out(folder):
    extra = {"h.0.attn.bias": np.ones((1, 1, 8, 8), np.float32), "h.1.attn.masked_bias": np.array(-1e4, np.float32)}
    path = folder(GPT2, lambda tensors: tensors | extra | {"lm_head.weight": tensors["wte.weight"] * 2})
    assert checkpoint.read(path).tree.head.weight is None
    same(xformer.load(path).params, xformer.init(GPT2, seed=3).params)


def test_C55_a_head_that_is_neither_tied_nor_there_is_missed_by_name(folder):
    with pytest.raises(ValueError, match=r"missing lm_head.weight \(512, 64\)"):
        checkpoint.read(folder(GPT2, config=lambda config: config | {"tie_word_embeddings": False}))


def test_an_untied_head_is_read_and_used(folder):
    path = folder(
        GPT2,
        lambda tensors: tensors | {"lm_head.weight": -tensors["wte.weight"]},
        lambda config: config | {"tie_word_embeddings": False},
    )
    np.testing.assert_allclose(xformer.load(path)([[1, 2, 3]]), -xformer.init(GPT2, seed=3)([[1, 2, 3]]), atol=1e-6)


@pytest.mark.parametrize("inner", [None, 37])
def test_C57_n_inner(folder, inner):
    def edit(tensors):
        if inner:
            for layer in "01":
                for name in ("c_fc.weight", "c_fc.bias", "c_proj.weight"):
                    name = f"h.{layer}.mlp.{name}"
                    tensors[name] = np.ascontiguousarray(tensors[name][..., :inner] if "c_fc" in name else tensors[name][:inner])
        return tensors

    found = checkpoint.read(folder(GPT2, edit, lambda config: config | {"n_inner": inner, "n_ctx": 5}))
    assert found.config.ffn == (inner or 4 * 64)
    assert found.tree.layers[0].up.weight.shape == (found.config.ffn, 64)


def test_old_norm_names(folder):
    rename = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def edit(tensors):
        for new, old in rename.items():
            tensors = {name.replace(new, old): tensor for name, tensor in tensors.items()}
        return tensors

    same(xformer.load(folder(BERT, edit)).params, xformer.init(BERT, seed=3).params)


def test_pooler_and_head_are_what_the_file_has(folder):
    path = folder(BERT, lambda tensors: {name: tensor for name, tensor in tensors.items() if "pooler" not in name})
    model = xformer.load(path)
    assert (model.config.pooler, model.config.head) == (False, False)
    with pytest.raises(ValueError, match="this bert has no pooler"):
        model.pool([[1, 2]])
    with pytest.raises(ValueError, match="this bert has no masked-language-model head"):
        model.logits([[1, 2]])


@pytest.mark.parametrize(
    ("preset", "change", "message"),
    [
        (BERT, {"model_type": "roberta"}, "unsupported model_type 'roberta'; supported: bert, gpt2"),
        (BERT, {"model_type": None}, "unsupported model_type 'None'"),
        (BERT, {"model_type": "../bert"}, r"unsupported model_type '\.\./bert'"),
        (
            BERT,
            {"position_embedding_type": "relative_key"},
            "position_embedding_type = 'relative_key' is not supported; supported: 'absolute'",
        ),
        (BERT, {"is_decoder": True}, "is_decoder = True is not supported"),
        (BERT, {"hidden_act": "mish"}, "unknown activation 'mish'"),
        (BERT, {"num_attention_heads": 5}, "width 64 is not a multiple of heads 5 .width is hidden_size"),
        (BERT, {"hidden_size": -64}, "width must be a positive integer, got -64"),
        (GPT2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True is not supported"),
        (GPT2, {"eos_token_id": [1, 2]}, r"eos_token_id = \[1, 2\] is not supported"),
        (GPT2, {"n_layer": 10**12}, "n_layer = 1000000000000, but there are only 28 tensors"),
        (GPT2, {"n_layer": "many"}, "layers must be a positive integer, got 'many'"),
    ],
)
def test_unsupported_options_are_named(folder, preset, change, message):
    with pytest.raises(ValueError, match=message):
        checkpoint.read(folder(preset, config=lambda config: config | change))


def test_a_missing_size_is_named(folder):
    with pytest.raises(ValueError, match=r"config.json: n_embd is missing"):
        checkpoint.read(folder(GPT2, config=lambda config: {key: value for key, value in config.items() if key != "n_embd"}))


@pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ("[1]", "expected a JSON object, got list"), ("\udcff", "not JSON")])
def test_a_config_that_is_not_one(folder, text, message):
    path = folder(BERT)
    (path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=message):
        checkpoint.read(path)


def test_missing_files_are_named(tmp_path, folder):
    with pytest.raises(FileNotFoundError, match=r"nowhere.config.json: no such file"):
        checkpoint.read(tmp_path / "nowhere")
    path = folder(BERT)
    (path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="none of model.safetensors, model.safetensors.index.json, pytorch_model.bin"):
        checkpoint.read(path)


def test_a_corrupt_file_is_named(folder):
    path = folder(BERT)
    (path / "model.safetensors").write_bytes((path / "model.safetensors").read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"model.safetensors: not a whole safetensors file"):
        xformer.load(path)


def _shard(path, rename=lambda name: name):
    tensors = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    names, where = sorted(tensors), {}
    for index, part in enumerate((names[::2], names[1::2])):
        shard = f"model-{index + 1:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, path / shard)
        where |= dict.fromkeys(part, rename(shard))
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def test_a_sharded_checkpoint(folder):
    path = folder(GPT2)
    _shard(path)
    same(xformer.load(path).params, xformer.init(GPT2, seed=3).params)


def test_a_shard_outside_the_folder_is_refused(folder):
    path = folder(GPT2)
    _shard(path, lambda name: "../" + name)
    with pytest.raises(ValueError, match=r"'\.\./model-00001-of-00002.safetensors' is not the name of a file in this folder"):
        checkpoint.read(path)


def test_a_missing_shard_is_named(folder):
    path = folder(GPT2)
    _shard(path)
    (path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model-00002-of-00002.safetensors: no such file"):
        checkpoint.read(path)


@pytest.mark.parametrize("preset", [BERT, GPT2])
def test_prepared_weights_are_saved_and_loaded(tmp_path, xp, precision, preset):
    model = xformer.init(preset, seed=3, namespace=xp, precision=precision)
    model.save(tmp_path)
    again = xformer.load(tmp_path, namespace=xp)
    assert again.precision is precision
    same(again.params, model.params)
    tokens = [[5, 6, 7, 1], [9, 8, 7, 1]]
    # Not bit for bit: GPT-2's files hold weights transposed, and a BLAS may sum such a matrix in another order.
    assert relative(again(tokens), model(tokens)) < 1e-6


def test_prepared_weights_of_another_precision_are_refused(folder):
    path = folder(GPT2, precision="int8")
    with pytest.raises(ValueError, match="holds weights prepared for int8; fp32 was asked for"):
        xformer.load(path, precision="fp32")


@pytest.mark.parametrize("entry", [{"format": 2, "precision": "int8"}, {"format": 1, "precision": "int4"}, {}])
def test_prepared_weights_of_an_unknown_kind_are_refused(folder, entry):
    with pytest.raises(ValueError, match="prepared weights of an unknown kind"):
        checkpoint.read(folder(GPT2, config=lambda config: config | {"xformer": entry}, precision="int8"))


def test_a_failed_save_leaves_the_old_file_whole(folder, monkeypatch):
    path = folder(GPT2)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    monkeypatch.setattr("xformer.storage.write", lambda *_: (_ for _ in ()).throw(OSError("no space left on device")))
    with pytest.raises(OSError, match="no space left"):
        xformer.init(GPT2, seed=4).save(path)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_saving_over_the_folder_that_is_mapped(folder):
    path = folder(GPT2)
    model = xformer.load(path)
    before = model([[1, 2, 3]])
    model.save(path)
    np.testing.assert_array_equal(model([[1, 2, 3]]), before)
    np.testing.assert_array_equal(xformer.load(path)([[1, 2, 3]]), before)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_checkpoints_are_widened(folder, xp, dtype):
    import ml_dtypes

    narrow = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    path = folder(GPT2, lambda tensors: {name: tensor.astype(narrow) for name, tensor in tensors.items()})
    got = xformer.load(path, namespace=xp)([[1, 2, 3]])
    assert got.dtype == xp.float32
    expected = xformer.load(path)([[1, 2, 3]])
    np.testing.assert_allclose(np.asarray(got), expected, atol=1e-5)


def test_C54_mapped_read_only_weights_work_everywhere(folder, xp, precision):
    path = folder(BERT)
    assert not checkpoint.read(path).tree.embedding.token.flags.writeable
    assert np.isfinite(np.asarray(xformer.load(path, namespace=xp, precision=precision)([[5, 6, 7]]))).all()


@pytest.mark.parametrize("change", ["moved", "left out", "twice"])
def test_an_index_and_its_shards_must_tell_the_same(folder, change):
    path = folder(GPT2)
    _shard(path)
    index = path / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    name, first, second = next(iter(places)), *sorted(set(places.values()))
    if change == "moved":
        places[name] = second
    elif change == "left out":
        del places[name]
    else:
        save_file({**load_file(path / second), name: load_file(path / first)[name] * 0}, path / second)
    index.write_text(json.dumps({"weight_map": places}))
    with pytest.raises(ValueError, match=rf"index.json: {name} is in .* by the index, but model-"):
        checkpoint.read(path)


@pytest.mark.parametrize("places", [[1], None, "x", {"a": 5}, {"a": None}])
def test_an_index_of_another_kind_is_refused(folder, places):
    path = folder(GPT2)
    _shard(path)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    with pytest.raises(ValueError, match="weight_map must be an object of names of files"):
        checkpoint.read(path)


def test_a_folder_that_holds_another_model_is_left_alone(folder):
    path = folder(GPT2)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(ValueError, match="holds another model, with model_type = 'gpt2' and not 'bert': save to another folder"):
        xformer.init(BERT).save(path)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("activation_function", ["gelu"], r"unknown activation \['gelu'\]"),
        ("eos_token_id", "a", "eos_token must be an id in"),
        ("eos_token_id", -1, "eos_token must be an id in"),
        ("eos_token_id", True, "eos_token must be an id in"),
        ("tie_word_embeddings", "no", "tied must be True or False, got 'no'"),
        ("xformer", 5, "prepared weights of an unknown kind: 5"),
        ("xformer", {"format": 1, "precision": ["x"]}, "prepared weights of an unknown kind"),
    ],
)
def test_a_value_of_another_kind_is_named(folder, key, value, message):
    path = folder(GPT2)
    options = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(options | {key: value}))
    with pytest.raises(ValueError, match=message):
        xformer.load(path)


def test_a_config_without_end_is_not_json(folder):
    path = folder(GPT2)
    (path / "config.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"config.json: not JSON"):
        xformer.load(path)


def test_weights_too_large_for_fp32_are_refused(folder):
    path = folder(GPT2)
    tensors = load_file(path / "model.safetensors")
    tensors["ln_f.bias"] = np.full(tensors["ln_f.bias"].shape, 1e300)
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(ValueError, match="ln_f.bias holds NaN, infinity, or a number too large for fp32"):
        xformer.load(path)


def test_other_pooling_than_the_mean_is_refused(folder):
    path = folder(BERT)
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    with pytest.raises(ValueError, match="pooling_mode_cls_token is not supported; supported: pooling_mode_mean_tokens"):
        xformer.load(path)
