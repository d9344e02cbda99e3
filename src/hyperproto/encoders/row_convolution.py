"""A convolution over rows of tables, for a CPU: what a row gives to a filter is computed once, not at each place."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.data import IntArray

TOGETHER = 64  # sentences whose sums are made at once: they fit into the cache

Rows = tuple[Tensor, IntArray]  # a table (n_rows, channels), and its row at each place


@torch.no_grad()
def convolved_maxima(
    parts: Sequence[Rows], convolution: nn.Conv1d, offsets: IntArray, done: Callable[[int], None] | None = None
) -> Tensor:
    """Convolve the rows of all parts, side by side, and take the maximum over each sentence: (n, filters).

    Sentences lie one after another, `offsets` apart; beyond the ends of each there is nothing, as with `padding=1`. It
    is fast where those of one length lie together.
    """
    lengths = np.diff(offsets)
    first, last = offsets[:-1][lengths > 0], offsets[1:][lengths > 0] - 1
    before, here, behind = convolution.weight.unbind(-1)  # each (filters, channels)
    gifts, places = [convolution.weight.new_zeros(1, len(here))], []  # row 0: nothing
    n_gifts, channel = 1, 0
    for table, rows in parts:
        own = slice(channel, channel + table.shape[1])
        for tap, step, ends in ((before, 1, first), (here, 0, []), (behind, -1, last)):
            place = np.roll(rows, step) + n_gifts
            place[ends] = 0
            places.append(place)
            gifts.append(table @ tap[:, own].T)
            n_gifts += len(table)
        channel = own.stop
    all_gifts, index = torch.cat(gifts), torch.from_numpy(np.stack(places, 1).astype(np.int32))
    maxima = convolution.weight.new_full((len(lengths), len(here)), -torch.inf)
    ends = np.append(np.flatnonzero(np.diff(lengths)) + 1, len(lengths))  # of the runs of equal length
    start = 0
    while start < len(lengths):
        stop = min(start + TOGETHER, int(ends[np.searchsorted(ends, start, side="right")]))
        if lengths[start]:
            sums = F.embedding_bag(index[offsets[start] : offsets[stop]], all_gifts, mode="sum")
            torch.amax(sums.view(stop - start, int(lengths[start]), -1), 1, out=maxima[start:stop])
        if done is not None:
            done(stop)
        start = stop
    return maxima if convolution.bias is None else maxima + convolution.bias
