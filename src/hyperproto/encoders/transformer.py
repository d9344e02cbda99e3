"""What all encoders that are language models share: a checkpoint, its tokenizer, and how a batch goes through it."""

from collections.abc import Iterator
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from hyperproto.encoders.base import Encoder
from hyperproto.encoders.pretrained import find_model, load_model, load_tokenizer
from hyperproto.errors import ConfigError

Batch = dict[str, Tensor]

TOGETHER = 16  # texts that go through the model at once on a CPU
NARROWEST = 4  # pieces of the text itself: two entities and something of them


class TransformerEncoder(Encoder):
    """Base of the encoders that are a language model: see `TextTransformer` and `TokenTransformer`.

    `model` is an alias (`minilm`, `mpnet`, `bert`), a folder, or a name on the Hugging Face hub; the tokenizer is that
    of the same checkpoint, always. A `frozen` model does not learn, and has no dropout. `max_length` is in word pieces.
    """

    argument = "model"
    name: ClassVar[str]  # in the registry

    def __init__(
        self, pooler: bool = False, *, model: str = "minilm", max_length: int = 128, frozen: bool = True
    ) -> None:
        """`pooler` is for subclasses that use it; the rest are options."""
        super().__init__()
        folder = str(find_model(model))
        self.tokenizer = load_tokenizer(folder)
        self.model = load_model(folder, pooler)
        self.max_length = max_length
        self.frozen = frozen
        self.before, self.behind = _special_pieces(self.tokenizer)
        self.fill = 0 if self.tokenizer.pad_token_id is None else int(self.tokenizer.pad_token_id)
        self.feature_shape = (int(self.model.config.hidden_size),)
        longest, shortest = _positions(self.model, self.tokenizer), len(self.before + self.behind) + NARROWEST
        if max_length > longest:
            raise ConfigError(
                f"{self.name}: max_length {max_length} is more word pieces than {model} can read; use at most {longest}"
            )
        if max_length < shortest:
            raise ConfigError(f"{self.name}: max_length {max_length} is too short; use at least {shortest}")
        if frozen:
            self.requires_grad_(False)
        self.train()

    @property
    def room(self) -> int:
        """How many pieces of the text itself the model reads at once."""
        return self.max_length - len(self.before) - len(self.behind)

    def train(self, mode: bool = True) -> Self:
        """Stay in eval mode where the weights are frozen."""
        return super().train(mode and not self.frozen)

    def hidden(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The last layer at every piece, (n, L, D), and which pieces are real, (n, L)."""
        output, real = self.output(batch)
        return output.last_hidden_state, real

    def output(self, batch: Batch, **options: Any) -> tuple[Any, Tensor]:
        """Run the model on pieces (n, L); return what it says, and which pieces are real, (n, L)."""
        pieces = batch["pieces"]
        real = torch.arange(pieces.shape[1], device=pieces.device) < batch["lengths"][:, None]
        return self.model(input_ids=pieces, attention_mask=real.long(), **options), real


def in_parts(batch: Batch) -> Iterator[tuple[Tensor, Batch]]:
    """Cut a batch into parts, each with the rows it has of it.

    A CPU reads a few texts of like length at a time: little padding beats large batches there.
    """
    order, size = torch.arange(len(batch["lengths"]), device=batch["lengths"].device), len(batch["lengths"])
    if order.device.type == "cpu":
        order, size = batch["lengths"].argsort(stable=True), TOGETHER
    for rows in torch.split(order, size):
        part = {key: values[rows] for key, values in batch.items()}
        part["pieces"] = part["pieces"][:, : int(part["lengths"].max())]
        yield rows, part


def _special_pieces(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and behind a text, such as [CLS] and [SEP]."""
    found = tokenizer.backend_tokenizer.encode("a")
    own = [place for place, special in enumerate(found.special_tokens_mask) if not special]
    return found.ids[: own[0]], found.ids[own[-1] + 1 :]


def _positions(model: nn.Module, tokenizer: Any) -> int:
    """How many pieces the checkpoint says that it reads, and has embeddings of positions for."""
    limits = [int(tokenizer.model_max_length)]  # enormous where it says nothing
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            padding = module.padding_idx  # where that is a row, positions are counted from the row behind it
            limits.append(module.num_embeddings - (0 if padding is None else padding + 1))
    return min(limits)
