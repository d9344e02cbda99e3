"""Meta networks whose first layer is the CNN's convolution."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from hyperproto.methods.metanet import MetaNet, Windows, activated

REACH = 3  # words that a filter reads


class MetaNetConv(MetaNet):
    """Munkhdalai and Yu, "Meta Networks", ICML 2017, with fast weights in the CNN's convolution: the FewRel toolkit's.

    `metanet`, but its first layers are convolutions of `hidden` filters over three words, ReLU, and the maximum over
    the sentence, as in `relation-cnn`: one for the base network, one for the representation, on shared embeddings of
    words. The gradient of a filter is that of the window at its maximum. Slow filters have a bias, fast ones none.
    """

    reads: ClassVar = "tokens"
    token_output: ClassVar = "embeddings"
    transforms = ("none",)
    bias: ClassVar[bool] = True

    def __init__(self, *, hidden: int = 230, **options: Any) -> None:
        super().__init__(hidden=hidden, **options)

    def _width(self) -> int:
        return REACH * self.feature_shape[1]

    def _windows(self, x: Tensor, mask: Tensor | None) -> Windows:
        """Three words around each, (n, L, C * 3), with nothing beyond the ends of a sentence."""
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask  # (n, L)
        x = x.masked_fill(~real[..., None], 0.0)
        return Windows(F.pad(x, (0, 0, 1, 1)).unfold(1, REACH, 1).flatten(2), real)

    def _mixed(self, query: Windows, attention: Tensor, fast: Tensor) -> Tensor:
        """Convolve each query with filters of its own."""
        filters = torch.einsum("qs,shp->qhp", attention, fast)
        return activated(query.x @ filters.mT, query.real)
