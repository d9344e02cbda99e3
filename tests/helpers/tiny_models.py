"""Language models of two layers with random weights, saved as folders: soon made, soon loaded, as wrong as any."""

import json
from pathlib import Path
from typing import Any

import torch

WORDS = [
    "the",
    "a",
    "of",
    "in",
    "was",
    "born",
    "city",
    "river",
    "king",
    "queen",
    "paris",
    "london",
    "anna",
    "bob",
    "met",
]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789,."
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 162,
}


def tiny_bert(folder: Path, **config: Any) -> Path:
    """A BERT that knows a few words, and spells all others."""
    from transformers import BertConfig, BertModel, BertTokenizer

    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    vocab = {piece: n for n, piece in enumerate(dict.fromkeys(known))}
    BertTokenizer(vocab=vocab, do_lower_case=True).save_pretrained(folder)
    save(_made(BertModel, seeded(BertConfig(vocab_size=len(vocab), **SIZES, **config))), folder)
    return folder


def tiny_bert_with_head(folder: Path) -> Path:
    """The same BERT with a head that predicts masked pieces."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig.from_pretrained(tiny_bert(folder))
    save(_made(BertForMaskedLM, seeded(config)), folder)
    return folder


def tiny_roberta(folder: Path) -> Path:
    """A RoBERTa, whose tokenizer keeps spaces, and whose positions are counted from 2."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import RobertaConfig, RobertaModel, RobertaTokenizer

    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    learned.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    made = json.loads(learned.to_str())["model"]
    merges: Any = [tuple(merge) for merge in made["merges"]]
    tokenizer = RobertaTokenizer(vocab=made["vocab"], merges=merges)
    tokenizer.save_pretrained(folder)
    save(_made(RobertaModel, seeded(RobertaConfig(vocab_size=len(tokenizer), pad_token_id=1, **SIZES))), folder)
    return folder


def _made(network: Any, config: Any) -> Any:
    """Transformers' networks have no types."""
    return network(config)


def seeded(config: Any) -> Any:
    torch.manual_seed(0)
    return config


def save(model: Any, folder: Path) -> None:
    """Weights large enough that what is read makes a difference."""
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    model.save_pretrained(folder)


def tiny_gpt2(folder: Path, padding_side: str = "right") -> Path:
    """A GPT-2, in which a piece sees only those before it, and which puts nothing before or behind a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast

    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<pad>"], initial_alphabet=alphabet, show_progress=False
    )
    learned.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    fast: Any = PreTrainedTokenizerFast  # which has no types
    tokenizer = fast(tokenizer_object=learned, pad_token="<pad>", padding_side=padding_side)
    tokenizer.save_pretrained(folder)
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, n_positions=162)
    save(_made(GPT2Model, seeded(config)), folder)
    return folder


PARTS = "sentence_transformers.models"


def as_sentence_transformer(
    folder: Path,
    pooling: dict[str, Any] | None = None,
    *layers: dict[str, Any] | str,
    settings: dict[str, Any] | None = None,
    prompts: dict[str, Any] | None = None,
) -> Path:
    """Write the files of sentence-transformers beside a model.

    `layers` are the configurations of dense layers, with random weights, and the names of parts without any.
    """
    from safetensors.torch import save_file

    parts: list[tuple[str, str]] = [("", "Transformer"), ("1_Pooling", "Pooling")]
    _write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, **(pooling or {})})
    torch.manual_seed(1)
    for n, layer in enumerate(layers, start=2):
        kind = layer if isinstance(layer, str) else "Dense"
        parts.append((f"{n}_{kind}", kind))
        if isinstance(layer, dict):
            path = folder / f"{n}_Dense"
            _write(path / "config.json", layer)
            weights = {"linear.weight": torch.randn(layer["out_features"], layer["in_features"]) / 4}
            bias = {"linear.bias": torch.randn(layer["out_features"])} if layer["bias"] else {}
            save_file(weights | bias, path / "model.safetensors")
    listed = [
        {"idx": n, "name": str(n), "path": path, "type": f"{PARTS}.{kind}"} for n, (path, kind) in enumerate(parts)
    ]
    _write(folder / "modules.json", listed)
    if settings is not None:
        _write(folder / "sentence_bert_config.json", settings)
    if prompts is not None:
        _write(folder / "config_sentence_transformers.json", prompts)
    return folder


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
