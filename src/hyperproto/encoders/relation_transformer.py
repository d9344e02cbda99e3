"""Language model for sentences with a marked head and tail, and masked-language modelling in training."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.data import IntArray, Pool
from hyperproto.data.formats.relations import BLANK, Relation, check_relations
from hyperproto.encoders.parts.pretrained import load_language_head
from hyperproto.encoders.parts.transformer import Batch, TextTransformer, Tokens, mean_of_real
from hyperproto.errors import ConfigError

if TYPE_CHECKING:
    from hyperproto.encoders.parts.transformer import Batch, TransformerEncoder


MARKERS = (("[HEAD]", "[/HEAD]"), ("[TAIL]", "[/TAIL]"))  # before and after each entity

_PARTS = {"markers": 2, "entities": 3}  # number of concatenated states, if more than one

Spans = list[tuple[int, int]]


class RelationTransformer(TextTransformer):
    """Baldini Soares et al., "Matching the Blanks: Distributional Similarity for Relation Learning", 2019.

    Four new marker tokens surround head and tail. `representation` says which states of the last layer form the vector:

    - `markers`: the states at the two start markers, head then tail, concatenated (2D);
    - `pooled`: the state at the first token, [CLS] with BERT, without a dense layer;
    - `pooler`: that state through the checkpoint's pooler (BERT's dense layer and tanh), as in the FewRel toolkit;
    - `mean`: the mean over all tokens, as in sentence-transformers (without scaling to length 1);
    - `entities`: that mean, and the means over the tokens of the head and of the tail, concatenated (3D);
    - `prompt`: the mean over the text "HEAD and TAIL: the sentence".

    The default of a trained model (`frozen = false`) is `markers`. That of a frozen one, which has never seen markers,
    is `prompt`: it was best on held-out relations of FewRel's training file, with one shot and with unequal shots
    (`results/relations/fewrel-minilm-frozen-names-choices.json`).

    `blanks` adds a token for an entity whose name is hidden. `mlm` is the weight of the masked-language loss in
    training; "auto" is 1 if the checkpoint has a head for it, else 0. `dropout` applies to the vectors or maps in
    training. A sentence of more than `max_length` tokens is cut, keeping head and tail: see `kept_positions`.
    """

    name = "relation-transformer"
    splits_words = True
    keeps = "heads and tails were kept"

    def __init__(
        self,
        *,
        representation: Literal["auto", "markers", "pooled", "pooler", "mean", "entities", "prompt"] = "auto",
        markers: bool | None = None,
        dropout: float = 0.0,
        blanks: bool = False,
        mlm: float | Literal["auto"] = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(representation == "pooler", **options)
        self.dropout = nn.Dropout(dropout)
        if self.output == "maps" and representation != "auto":
            raise ConfigError(
                f"{self.name}: output 'maps' returns the state at every piece, so that representation "
                f"{representation!r} has no effect; leave it out"
            )
        if representation == "auto" and markers is None and self.output == "vectors":
            representation = "prompt" if self.frozen else "markers"
        if markers is None:
            markers = representation == "markers" or (not self.frozen and representation != "prompt")
        if representation == "auto":
            representation = "markers" if markers else "mean"
        if representation == "markers" and not markers:
            raise ConfigError(
                f"{self.name}: representation 'markers' needs the markers that 'markers = false' leaves out; "
                "choose 'mean' or 'pooled'"
            )
        if representation == "prompt" and markers:
            raise ConfigError(
                f"{self.name}: representation 'prompt' names head and tail before the sentence, without markers; leave "
                "'markers' out"
            )
        self.markers = markers
        self.blanks = blanks
        self.representation = representation
        self._add_pieces([name for pair in MARKERS for name in pair if markers] + [BLANK] * blanks)
        self.masked = MaskedLanguage.of(self, mlm)
        self.register_load_state_dict_pre_hook(_without_another_head)  # type: ignore[no-untyped-call]
        if self.output == "vectors":
            self.feature_shape = (_PARTS.get(representation, 1) * self.feature_shape[0],)

    def _add_pieces(self, names: list[str]) -> None:
        """Add tokens that are not in the checkpoint, with random embeddings of its initialisation."""
        if not names:
            return
        known = self.tokenizer.get_vocab()
        self.tokenizer.add_tokens(names, special_tokens=True)
        if len(self.tokenizer) > self.model.get_input_embeddings().num_embeddings:
            self.model.resize_token_embeddings(len(self.tokenizer), mean_resizing=False)
        table = self.model.get_input_embeddings().weight.data
        for row in self.tokenizer.convert_tokens_to_ids([name for name in names if name not in known]):
            nn.init.normal_(table[row], std=self.model.config.initializer_range)

    @classmethod
    def options_for(cls, pool: Pool) -> dict[str, Any]:
        """Return no options, but raise a DataError if the items are not relations."""
        check_relations(pool, cls.name)
        return {}

    def settings(self) -> dict[str, Any]:
        """Return whether there are markers, blanks or a prompt."""
        own = {"markers": self.markers, "blanks": self.blanks}
        return {**own, "prompt": True} if self.representation == "prompt" else own

    def read(self, items: Sequence[Relation]) -> tuple[list[list[str]], IntArray]:
        """Return the words of each sentence, with or without markers, and the spans of head and tail."""
        texts, spans = [], []
        for item in items:
            # some tokenizers need the space to begin a new word
            words = [word if self.blanks and word == BLANK else f" {word}" for word in item["tokens"]]
            entities = [(part[0], part[-1] + 1) for part in (item["head"], item["tail"])]
            if self.markers:
                words, entities = _marked(words, entities)
            elif self.representation == "prompt":
                words, entities = _prompted(words, entities)
            texts.append(words)
            spans.append(entities)
        return texts, np.array(spans, np.int64).reshape(-1, 2, 2)

    def collate_pairs(self, prepared: Tokens, first: IntArray, second: IntArray) -> Batch:
        """Return a batch of pairs of sentences; only for representations that do not depend on head and tail."""
        if self.representation in _PARTS and self.output == "vectors":
            raise ConfigError(
                f"{self.name}: a pair of sentences has no vector at head and tail of one; choose representation "
                "'pooled', 'pooler' or 'mean'"
            )
        return super().collate_pairs(prepared, first, second)

    def vectors(self, states: Tensor, real: Tensor, batch: Batch) -> Tensor:
        """Return the vector that `representation` selects, with dropout in training."""
        if self.representation == "markers":
            rows = torch.arange(len(states), device=states.device)[:, None]
            x = states[rows, batch["starts"]].flatten(1)  # (n, 2 D)
        elif self.representation == "entities":
            x = torch.cat([mean_of_real(states, part) for part in (real, *_inside(real, batch))], 1)  # (n, 3 D)
        elif self.representation == "pooler":
            x = self.model.pooler(states)
        else:
            x = states[:, 0] if self.representation == "pooled" else mean_of_real(states, real)
        return cast(Tensor, self.dropout(x))

    def text_vectors(self, states: Tensor, real: Tensor) -> Tensor:
        """Return vectors of texts without marked entities, such as relation names, as long as those of the items.

        The first state and the mean replace the two markers (Liu et al. 2022); the mean replaces all three means.
        """
        mean = mean_of_real(states, real)
        if self.output == "vectors" and self.representation == "markers":
            return torch.cat([states[:, 0], mean], 1)
        return mean.tile(1, _PARTS.get(self.representation, 1) if self.output == "vectors" else 1)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Return the masked-language loss, if there is one."""
        return {} if self.masked is None else {"mlm": self.masked(self, batch)}

    def maps(self, states: Tensor) -> Tensor:
        """Return the states, with dropout in training."""
        return cast(Tensor, self.dropout(states))


def _without_another_head(encoder: RelationTransformer, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Drop weights of a masked-language head from a state dict if this encoder has no such head."""
    if encoder.masked is None:
        for key in [key for key in state if key.startswith(f"{prefix}masked.")]:
            del state[key]


def _inside(real: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return masks (n, L) of the tokens of the head and of the tail; the first token if cutting left none."""
    places = torch.arange(real.shape[1], device=real.device)
    ends = torch.maximum(batch["ends"], batch["starts"] + 1)
    inside = (places >= batch["starts"][..., None]) & (places < ends[..., None])  # (n, 2, L)
    return inside[:, 0], inside[:, 1]


def _prompted(words: list[str], entities: Spans) -> tuple[list[str], Spans]:
    """Put "HEAD and TAIL:" before the words, and return the spans of head and tail in this prefix."""
    head, tail = (words[start:end] for start, end in entities)
    begin = len(head) + 1
    return [*head, " and", *tail, ":", *words], [(0, len(head)), (begin, begin + len(tail))]


def _marked(words: list[str], entities: Spans) -> tuple[list[str], Spans]:
    """Insert markers around the entities, which may overlap; return words and spans with markers.

    Between the same two words, end markers precede start markers, and the longer of two entities is outside.
    """
    wanted = []
    for which, (start, end) in enumerate(entities):
        wanted.append((start, 1, -end, which, which))
        wanted.append((end, 0, -start, -which, which))
    words, spans = list(words), [[0, 0] for _ in entities]
    for already, (gap, is_start, _, _, which) in enumerate(sorted(wanted)):
        place = gap + already
        words.insert(place, MARKERS[which][1 - is_start])
        spans[which][1 - is_start] = place + 1 - is_start
    return words, [(start, end) for start, end in spans]


SHARE = 0.15  # share of predicted tokens
MASKED, REPLACED = 0.8, 0.1  # shares of these that are masked, or replaced by a random token


class MaskedLanguage(nn.Module):
    """Devlin et al., "BERT", NAACL 2019: masked-language loss with the checkpoint's own head.

    15 % of the tokens are predicted: 80 % of these are masked, 10 % replaced by a random token, 10 % unchanged. Special
    tokens, markers and blanks are excluded. The last layer of the head is the table of token embeddings, as in the
    checkpoint, plus a bias.
    """

    ordinary: Tensor

    def __init__(self, head: nn.Module, bias: Tensor, tokenizer: Any, weight: float) -> None:
        super().__init__()
        self.head = head
        self.bias = nn.Parameter(bias)
        self.weight = weight
        self.mask = int(tokenizer.mask_token_id)
        ordinary = sorted({*range(len(bias))} - {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()})
        self.register_buffer("ordinary", torch.tensor(ordinary), persistent=False)  # ids of tokens that are not special

    @classmethod
    def of(cls, encoder: "TransformerEncoder", weight: float | Literal["auto"]) -> "MaskedLanguage | None":
        """Return the loss, or None if its weight is 0; "auto" is 1 if the checkpoint has such a head, else 0."""
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
            raise ConfigError(f"mlm = {weight}: a frozen model is not trained; set frozen = false or leave it out")
        head, bias = found
        rows = encoder.model.get_input_embeddings().num_embeddings  # more than in the checkpoint: markers, blanks
        return cls(head, F.pad(bias, (0, rows - len(bias))), encoder.tokenizer, 1.0 if weight == "auto" else weight)

    def forward(self, encoder: "TransformerEncoder", batch: "Batch") -> Tensor:
        """Mask tokens of a batch and return the weighted mean cross entropy of their prediction; 0 without any."""
        hidden, chosen = self.hide(batch["pieces"], batch["lengths"])
        states, _ = encoder.hidden({**batch, "pieces": hidden})  # (n, L, D)
        table = encoder.model.get_input_embeddings().weight
        logits = F.linear(self.head(states[chosen]), table, self.bias)  # (chosen, pieces)
        loss = F.cross_entropy(logits, batch["pieces"][chosen], reduction="sum")
        return self.weight * loss / chosen.sum().clamp(min=1)

    def hide(self, pieces: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens (n, L) of which some are masked or replaced, and the mask (n, L) of those to predict."""
        real = torch.arange(pieces.shape[1], device=pieces.device) < lengths[:, None]
        may = real & torch.isin(pieces, self.ordinary)
        chosen = may & (torch.rand(pieces.shape, device=pieces.device) < SHARE)
        how = torch.rand(pieces.shape, device=pieces.device)
        others = self.ordinary[torch.randint(len(self.ordinary), pieces.shape, device=pieces.device)]
        hidden = pieces.masked_fill(chosen & (how < MASKED), self.mask)
        return torch.where(chosen & (how >= MASKED) & (how < MASKED + REPLACED), others, hidden), chosen
