"""Units: vectors and padded token states of items, taken, cut and put together."""

import numpy as np
import pytest
import torch

from hyperproto.data import Pool
from hyperproto.encoders import ENCODERS, Encoder, Units, make_encoder, resolve_encoder
from hyperproto.encoders.identity import Identity
from hyperproto.errors import ConfigError


def states(*lengths: int, longest: int | None = None, first: float = 1.0) -> Units:
    """Token states (n, L, 2) that count up from `first`, one item each."""
    width = max(lengths) if longest is None else longest
    x, mask = torch.zeros(len(lengths), width, 2), torch.zeros(len(lengths), width, dtype=torch.bool)
    for row, length in enumerate(lengths):
        mask[row, :length] = True
        x[row, :length] = first + torch.arange(2.0 * length).view(length, 2) + 10 * row
    return Units.one_each(x, mask)


def test_blocks_of_unequal_length_are_padded_with_zeros_that_the_mask_leaves_out() -> None:
    short, long = states(1, 2), states(4, 3, first=100.0)
    together = Units.concatenated([short, long, states(2)])
    assert together.mask is not None
    assert together.x.shape == (5, 4, 2)
    assert together.mask.sum(1).tolist() == [1, 2, 4, 3, 2]
    assert together.offsets.tolist() == [0, 1, 2, 3, 4, 5]
    assert (together.x[~together.mask] == 0).all()
    for block, rows in ((short, slice(0, 2)), (long, slice(2, 4))):
        assert block.mask is not None
        torch.testing.assert_close(together.x[rows][together.mask[rows]], block.x[block.mask], rtol=0, atol=0)


def test_items_bring_their_masks_and_are_cut_to_the_longest_of_them() -> None:
    units = states(1, 5, 2, 3)
    some = units.of_items(np.array([3, 0]))
    assert some.mask is not None
    assert some.x.shape == (2, 3, 2)
    assert some.mask.tolist() == [[True, True, True], [True, False, False]]
    assert some.x[1].tolist() == units.x[0, :3].tolist()
    assert units.of_items(np.zeros(0, np.int64)).x.shape[0] == 0
    assert Units.one_each(torch.ones(3, 2)).of_items(np.array([1])).mask is None


def test_items_of_several_units_keep_them_together() -> None:
    words = states(2, 1, 3)
    units = Units(words.x, np.array([0, 2, 3]), words.mask)  # the first item has two units
    some = units.of_items(np.array([1, 0]))
    assert some.mask is not None
    assert some.mask.sum(1).tolist() == [3, 2, 1]
    assert some.offsets.tolist() == [0, 1, 3]


def test_vectors_have_no_mask() -> None:
    both = Units.concatenated([Units.one_each(torch.ones(2, 3)), Units.one_each(torch.zeros(1, 3))])
    assert both.mask is None
    assert both.x.shape == (3, 3)


def test_an_encoder_says_which_options_come_from_the_data_and_what_differs() -> None:
    small, large = (Pool(np.zeros((2, side, side, 3), np.uint8), np.zeros(2, int), ("a",)) for side in (16, 32))
    encoder = make_encoder(*resolve_encoder("conv4", {}, small))
    assert encoder.differences(small) == []
    assert encoder.differences(large) == ["size 32, not 16"]
    images = [name for name in ENCODERS.names() if "size" in ENCODERS.get(name).data_options]
    assert images == ["conv4", "efficientnet-lite0", "resnet12", "resnet18", "wrn28_10"]
    for name in [*images, "identity"]:
        cls: type[Encoder] = ENCODERS.get(name)
        assert set(cls.options_for(small)) == set(cls.data_options)


def test_only_some_encoders_have_stages() -> None:
    with pytest.raises(ConfigError, match=r"Identity cannot be run stage by stage; choose .* such as conv4"):
        Identity(shape=[2]).stages()
