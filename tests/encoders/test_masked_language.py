"""Blanks as a piece of their own, and the loss of masked pieces on tiny models that have a head for it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hyperproto.data.formats.relations import BLANK, Relation
from hyperproto.encoders.relation_transformer import MASKED, REPLACED, SHARE, MaskedLanguage, RelationTransformer
from hyperproto.errors import ConfigError
from tests.helpers.tiny_models import tiny_bert_with_head

ITEMS: list[Relation] = [
    {"tokens": ["Anna", "was", "born", "in", "Paris", ",", "the", "city", "of", "kings"], "head": [0], "tail": [4]},
    {"tokens": [BLANK, "was", "born", "in", "Paris"], "head": [0], "tail": [4]},
    {"tokens": ["in", BLANK, BLANK, "met", "the", "queen"], "head": [2], "tail": [1]},
]


@pytest.fixture(scope="module")
def with_head(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_bert_with_head(tmp_path_factory.mktemp("head")))


def build(model: str, **options: Any) -> RelationTransformer:
    torch.manual_seed(0)
    return RelationTransformer(model=model, **{"frozen": False, "blanks": True, **options})


def pieces(encoder: RelationTransformer) -> list[str]:
    return [" ".join(encoder.tokenizer.convert_ids_to_tokens(row)) for row in encoder.prepare(ITEMS).pieces.rows()]


# Blanks -----------------------------------------------------------------------------------------------------------


def test_a_blank_is_one_piece_between_its_markers(bert: str) -> None:
    assert pieces(build(bert))[1:] == [
        "[CLS] [HEAD] [BLANK] [/HEAD] was born in [TAIL] paris [/TAIL] [SEP]",
        "[CLS] in [TAIL] [BLANK] [/TAIL] [HEAD] [BLANK] [/HEAD] met the queen [SEP]",
    ]
    assert pieces(build(bert, markers=False, representation="mean"))[1] == "[CLS] [BLANK] was born in paris [SEP]"


def test_no_space_before_a_blank_becomes_a_piece(roberta: str) -> None:
    row = pieces(build(roberta))[1]
    assert row.startswith("<s> [HEAD] [BLANK] [/HEAD] \u0120w")


def test_without_blanks_nothing_is_added(bert: str) -> None:
    """The weights of a run from before blanks existed keep their names and shapes."""
    plain, blank = build(bert, blanks=False), build(bert)
    shapes = {key: value.shape for key, value in plain.state_dict().items()}
    table = next(key for key in shapes if key.endswith("word_embeddings.weight"))
    assert {key: value.shape for key, value in blank.state_dict().items() if key != table} == {
        key: shape for key, shape in shapes.items() if key != table
    }
    assert blank.state_dict()[table].shape[0] == shapes[table][0] + 1
    assert torch.equal(blank.state_dict()[table][:-5], plain.state_dict()[table][:-4])  # markers are drawn
    assert BLANK not in pieces(plain)[1]


# Masked pieces ----------------------------------------------------------------------------------------------------


def test_the_head_is_that_of_the_checkpoint(with_head: str) -> None:
    """Its logits are those of the whole model, for the pieces that the checkpoint knows."""
    from transformers import AutoModelForMaskedLM

    encoder = build(with_head, mlm=1.0).eval()
    assert encoder.masked is not None
    whole: Any = AutoModelForMaskedLM.from_pretrained(with_head).eval()
    ids = torch.tensor([[2, 5, 6, 7, 8, 3]])
    states, _ = encoder.hidden({"pieces": ids, "lengths": torch.tensor([6])})
    table = encoder.model.get_input_embeddings().weight
    logits = torch.nn.functional.linear(encoder.masked.head(states), table, encoder.masked.bias)
    expected = whole(input_ids=ids).logits
    torch.testing.assert_close(logits[..., : expected.shape[-1]], expected, rtol=1e-4, atol=1e-4)
    assert logits.shape[-1] == expected.shape[-1] + 5  # four markers and the blank


def test_the_loss_is_the_cross_entropy_of_what_was_chosen(with_head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = build(with_head, mlm=0.5).eval()
    masked = encoder.masked
    assert masked is not None
    batch = encoder.collate(encoder.prepare(ITEMS), np.arange(3))
    chosen = torch.zeros_like(batch["pieces"], dtype=torch.bool)
    chosen[0, 4] = chosen[2, 9] = True
    hidden = batch["pieces"].masked_fill(chosen, masked.mask)
    monkeypatch.setattr(masked, "hide", lambda *_: (hidden, chosen))
    states, _ = encoder.hidden({**batch, "pieces": hidden})
    total = 0.0
    for row, place in ((0, 4), (2, 9)):
        logits = masked.head(states[row, place]) @ encoder.model.get_input_embeddings().weight.T + masked.bias
        total -= logits.log_softmax(-1)[batch["pieces"][row, place]].item()
    assert encoder.loss(batch)["mlm"].item() == pytest.approx(0.5 * total / 2, rel=1e-4)


def test_pieces_are_hidden_as_bert_does_but_never_markers_nor_blanks(with_head: str) -> None:
    torch.manual_seed(0)
    encoder = build(with_head, mlm="auto")
    masked = encoder.masked
    assert masked is not None
    assert masked.weight == 1.0
    batch = encoder.collate(encoder.prepare(ITEMS), np.zeros(2000, np.int64) + np.arange(2000) % 3)
    before, (after, chosen) = batch["pieces"], masked.hide(batch["pieces"], batch["lengths"])
    real = torch.arange(before.shape[1]) < batch["lengths"][:, None]
    names = ["[CLS]", "[SEP]", "[PAD]", "[HEAD]", "[/HEAD]", "[TAIL]", "[/TAIL]", BLANK]
    special = torch.isin(before, torch.tensor(encoder.tokenizer.convert_tokens_to_ids(names)))
    assert not (chosen & (special | ~real)).any()
    assert torch.equal(after[~chosen], before[~chosen])
    assert chosen[real & ~special].float().mean().item() == pytest.approx(SHARE, abs=0.01)
    changed, hidden = after[chosen] != before[chosen], after[chosen] == masked.mask
    assert hidden.float().mean().item() == pytest.approx(MASKED, abs=0.03)
    assert (changed & ~hidden).float().mean().item() == pytest.approx(REPLACED, abs=0.03)


def test_what_stands_behind_a_text_is_not_predicted(with_head: str) -> None:
    masked = build(with_head, mlm="auto").masked
    assert masked is not None
    _, chosen = masked.hide(masked.ordinary[:1].expand(500, 6), torch.full((500,), 2))
    assert chosen[:, :2].any()
    assert not chosen[:, 2:].any()


def test_gradients_reach_the_model_and_the_head(with_head: str) -> None:
    torch.manual_seed(0)
    encoder = build(with_head, mlm="auto")
    batch = encoder.collate(encoder.prepare(ITEMS), np.arange(3).repeat(20))
    encoder.loss(batch)["mlm"].backward()  # type: ignore[no-untyped-call]
    assert isinstance(encoder.masked, MaskedLanguage)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encoder.masked.parameters())
    assert sum(p.grad is not None for p in encoder.model.parameters()) > 20


def test_nothing_chosen_costs_nothing(with_head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperproto.encoders.relation_transformer.SHARE", 0.0)
    encoder = build(with_head, mlm=1.0)
    assert encoder.loss(encoder.collate(encoder.prepare(ITEMS), np.arange(3)))["mlm"].item() == 0.0


def test_a_checkpoint_without_a_head_has_no_such_loss(bert: str) -> None:
    encoder = build(bert, mlm="auto")
    assert encoder.masked is None
    assert encoder.loss(encoder.collate(encoder.prepare(ITEMS), np.arange(3))) == {}
    with pytest.raises(ConfigError, match=r"mlm = 1.0: .* has no masked-language head; use 'auto' or leave it out"):
        build(bert, mlm=1.0)


def test_weights_that_make_no_sense_are_refused(with_head: str) -> None:
    with pytest.raises(ConfigError, match=r"mlm = -1.0 must be 0 or more, or 'auto'"):
        build(with_head, mlm=-1.0)
    with pytest.raises(ConfigError, match=r"mlm = auto: a frozen model is not trained; set frozen = false"):
        build(with_head, mlm="auto", frozen=True)


def test_an_encoder_without_the_head_takes_the_rest(with_head: str, tmp_path: Path) -> None:
    before, after = build(with_head, mlm="auto"), build(with_head)
    for parameter in before.parameters():
        parameter.data += 0.1
    after.load_state_dict(before.state_dict())
    own = after.state_dict()
    assert {key for key in before.state_dict() if not key.startswith("masked.")} == own.keys()
    assert all(torch.equal(before.state_dict()[key], value) for key, value in own.items())
