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
