"""Masked-language modelling beside another loss: some pieces of a text are hidden, and predicted from the others."""

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.encoders.pretrained import load_language_head
from hyperproto.errors import ConfigError

if TYPE_CHECKING:
    from hyperproto.encoders.transformer import Batch, TransformerEncoder

SHARE = 0.15  # of the pieces are predicted
MASKED, REPLACED = 0.8, 0.1  # of those are hidden, and replaced by others; the rest is shown


class MaskedLanguage(nn.Module):
    """The loss of masked pieces (Devlin et al., "BERT", NAACL 2019), with the checkpoint's own head.

    15 % of the pieces are predicted: 80 % of these are hidden, 10 % are replaced by another piece, 10 % stay. Pieces
    that open or close a text, markers and blanks are never among them. The head's last layer is the table of the
    model's embeddings, as in the checkpoint, and a bias.
    """

    ordinary: Tensor

    def __init__(self, head: nn.Module, bias: Tensor, tokenizer: Any, weight: float) -> None:
        super().__init__()
        self.head = head
        self.bias = nn.Parameter(bias)
        self.weight = weight
        self.mask = int(tokenizer.mask_token_id)
        ordinary = sorted({*range(len(bias))} - {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()})
        self.register_buffer("ordinary", torch.tensor(ordinary), persistent=False)  # pieces of words

    @classmethod
    def of(cls, encoder: "TransformerEncoder", weight: float | Literal["auto"]) -> "MaskedLanguage | None":
        """Make it for an encoder, None where the weight is 0; "auto" is 1 where the checkpoint has a head, else 0."""
        if weight == 0:
            return None
        if weight != "auto" and weight < 0:
            raise ConfigError(f"mlm = {weight} must be 0 or more, or 'auto'")
        found = None if encoder.tokenizer.mask_token_id is None else load_language_head(encoder.folder)
        if found is None and weight == "auto":
            return None
        if found is None:
            raise ConfigError(
                f"mlm = {weight}: {encoder.folder} has no masked-language head; use 'auto' or leave it out"
            )
        if encoder.frozen:
            raise ConfigError(f"mlm = {weight}: a frozen model does not learn; set frozen = false or leave it out")
        head, bias = found
        rows = encoder.model.get_input_embeddings().num_embeddings  # markers and blanks have come since
        return cls(head, F.pad(bias, (0, rows - len(bias))), encoder.tokenizer, 1.0 if weight == "auto" else weight)

    def forward(self, encoder: "TransformerEncoder", batch: "Batch") -> Tensor:
        """Hide pieces of a batch, and return the weighted mean cross entropy of those; 0 where none was chosen."""
        hidden, chosen = self.hide(batch["pieces"], batch["lengths"])
        states, _ = encoder.hidden({**batch, "pieces": hidden})  # (n, L, D)
        table = encoder.model.get_input_embeddings().weight
        logits = F.linear(self.head(states[chosen]), table, self.bias)  # (chosen, pieces)
        loss = F.cross_entropy(logits, batch["pieces"][chosen], reduction="sum")
        return self.weight * loss / chosen.sum().clamp(min=1)

    def hide(self, pieces: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return pieces (n, L) some of which are hidden, and which are to be predicted, (n, L) bool."""
        real = torch.arange(pieces.shape[1], device=pieces.device) < lengths[:, None]
        may = real & torch.isin(pieces, self.ordinary)
        chosen = may & (torch.rand(pieces.shape, device=pieces.device) < SHARE)
        how = torch.rand(pieces.shape, device=pieces.device)
        others = self.ordinary[torch.randint(len(self.ordinary), pieces.shape, device=pieces.device)]
        hidden = pieces.masked_fill(chosen & (how < MASKED), self.mask)
        return torch.where(chosen & (how >= MASKED) & (how < MASKED + REPLACED), others, hidden), chosen
