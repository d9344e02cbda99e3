"""A language model that reads a sentence in which the head and the tail are marked."""

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


MARKERS = (("[HEAD]", "[/HEAD]"), ("[TAIL]", "[/TAIL]"))  # before and behind each

_PARTS = {"markers": 2, "entities": 3}  # states that a vector is made of, where it is not one

Spans = list[tuple[int, int]]


class RelationTransformer(TextTransformer):
    """Sentences with a head and a tail, through a language model.

    Baldini Soares et al., "Matching the Blanks: Distributional Similarity for Relation Learning", 2019. Four new pieces
    stand around head and tail, whichever of them comes first; `representation` says what becomes of the last layer:

    - `markers`: the states at the two start markers, head then tail, one behind the other (2D numbers);
    - `pooled`: the state at the first piece, [CLS] with BERT; no dense layer follows it;
    - `pooler`: that state through the checkpoint's pooler, BERT's dense layer and tanh, as the FewRel toolkit has it;
    - `mean`: the average over all pieces of the text, as sentence-transformers does (without scaling to length 1);
    - `entities`: that average, and those over the pieces of the head and of the tail, one behind the other (3D);
    - `prompt`: the average over a text that names the two first, "HEAD and TAIL: the sentence".

    A model that learns (`frozen = false`) has markers and gives their states. A frozen one knows nothing of markers: it
    reads the `prompt`, which was best on held-out relations of FewRel's training file at one and at unequal shots
    (`results/relations/fewrel-minilm-frozen-names-choices.json`). Both can be set otherwise.

    `blanks` adds a piece that stands for an entity whose name is hidden, and `mlm` is the
    weight of the loss of masked pieces in training: "auto" is 1 where the checkpoint has a head for it, else 0.
    `dropout` is for training, on the vectors or maps. A sentence of more than `max_length` pieces is cut, but neither
    head nor tail is lost: see `kept_positions`.
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
                f"{self.name}: output 'maps' gives the state at every piece, so that representation {representation!r} "
                "has no part in it; leave it out"
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
        """Give pieces that the checkpoint does not know embeddings, drawn as its own were before it learned."""
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
        """Nothing follows from the data, but they must be relations."""
        check_relations(pool, cls.name)
        return {}

    def settings(self) -> dict[str, Any]:
        """Whether there are markers, blanks, or a prompt."""
        own = {"markers": self.markers, "blanks": self.blanks}
        return {**own, "prompt": True} if self.representation == "prompt" else own

    def read(self, items: Sequence[Relation]) -> tuple[list[list[str]], IntArray]:
        """The words of each sentence, with or without markers, and where head and tail are."""
        texts, spans = [], []
        for item in items:
            # without a space it would be part of a word to some models
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
        """Pairs of sentences; their vector is of the pair, so that head and tail of one sentence cannot be it."""
        if self.representation in _PARTS and self.output == "vectors":
            raise ConfigError(
                f"{self.name}: a pair of sentences has no vector at head and tail of one; choose representation "
                "'pooled', 'pooler' or 'mean'"
            )
        return super().collate_pairs(prepared, first, second)

    def vectors(self, states: Tensor, real: Tensor, batch: Batch) -> Tensor:
        """What `representation` names."""
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
        """A vector of as many numbers as those of the items, for names of relations, which mark no entities.

        In place of two markers: the first piece and the mean (Liu et al. 2022); of three means: the one there is.
        """
        mean = mean_of_real(states, real)
        if self.output == "vectors" and self.representation == "markers":
            return torch.cat([states[:, 0], mean], 1)
        return mean.tile(1, _PARTS.get(self.representation, 1) if self.output == "vectors" else 1)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """The loss of masked pieces, where there is one."""
        return {} if self.masked is None else {"mlm": self.masked(self, batch)}

    def maps(self, states: Tensor) -> Tensor:
        """The states, with dropout in training."""
        return cast(Tensor, self.dropout(states))


def _without_another_head(encoder: RelationTransformer, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Leave out the weights for masked pieces of an encoder that this one starts from, where it predicts none."""
    if encoder.masked is None:
        for key in [key for key in state if key.startswith(f"{prefix}masked.")]:
            del state[key]


def _inside(real: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Which pieces (n, L) are of the head, and which of the tail; the first where cutting left none."""
    places = torch.arange(real.shape[1], device=real.device)
    ends = torch.maximum(batch["ends"], batch["starts"] + 1)
    inside = (places >= batch["starts"][..., None]) & (places < ends[..., None])  # (n, 2, L)
    return inside[:, 0], inside[:, 1]


def _prompted(words: list[str], entities: Spans) -> tuple[list[str], Spans]:
    """Put "HEAD and TAIL:" before the words; head and tail are then there."""
    head, tail = (words[start:end] for start, end in entities)
    begin = len(head) + 1
    return [*head, " and", *tail, ":", *words], [(0, len(head)), (begin, begin + len(tail))]


def _marked(words: list[str], entities: Spans) -> tuple[list[str], Spans]:
    """Put markers around the entities, which may overlap; return the spans with their markers, too.

    Where several stand between the same two words, ends come before starts, and of two entities the longer is outside.
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
