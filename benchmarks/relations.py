"""Relations, against the FewRel toolkit, which tokenises at each draw, pads to 128 and encodes every episode again.

Its way is written out here with the same networks and the same weights, so that only the way differs. It is kinder than
the toolkit itself in one point: a sentence goes through the fast tokenizer in one call, not word by word.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from benchmarks.batched_scoring import nearest_mean
from benchmarks.measure import Measurement, Times, in_turns, seconds
from hyperproto.data import Pool, open_pool
from hyperproto.data.formats.relations import Relation, uncased
from hyperproto.encoders import Encoder
from hyperproto.encoders.relation_cnn import RelationCNN
from hyperproto.encoders.relation_transformer import MARKERS, RelationTransformer
from hyperproto.episodes import Episode, EpisodeSampler
from hyperproto.errors import DataError
from hyperproto.evaluation import EncodedPool, Predictor, measure_episodes, predict_episodes
from hyperproto.methods import make_method
from hyperproto.recipes import Optim
from hyperproto.training import Learner
from hyperproto.training.optimisers import make_optimiser

WAY, SHOT, QUERY = 5, 5, 5
Head = Callable[[Tensor, Tensor, Episode], Tensor]  # from vectors of support and queries to labels of the queries
LENGTH = 128  # words or word pieces that the toolkit pads every sentence to


def relations(quick: bool) -> list[Measurement]:
    """Time an evaluation on val_wiki and a training step, with the CNN and with MiniLM."""
    pool = fewrel_pool(quick)
    torch.manual_seed(0)
    cnn = RelationCNN()
    frozen, minilm = (RelationTransformer(model="minilm", frozen=frozen) for frozen in (True, False))
    return [
        evaluation("CNN", _protonet(cnn), ToolkitCNN(cnn), pool, quick),
        evaluation("frozen MiniLM", _protonet(frozen), ToolkitTransformer(frozen), pool, quick),
        _training_step("CNN", cnn, ToolkitCNN(deepcopy(cnn)), pool, 8.0, quick),
        _training_step("MiniLM", minilm, ToolkitTransformer(deepcopy(minilm)), pool, 2.7, quick),
    ]


def nearest_class(support: Tensor, query: Tensor, episode: Episode) -> Tensor:
    """Score as ProtoNet does."""
    return nearest_mean(support, query)


def _protonet(encoder: Encoder) -> Predictor:
    return Predictor.of(make_method("protonet", feature_shape=encoder.feature_shape).eval(), encoder)


class ToolkitWay(ABC):
    """Encoder of the toolkit: sentences are tokenised one by one and padded to one length."""

    weights: list[nn.Parameter]  # those that learn

    def __call__(self, items: Sequence[Relation]) -> Tensor:
        """Tokenise one sentence after another, stack, encode."""
        rows = [self.tokenised(item) for item in items]
        return self.encoded(*(torch.tensor(np.stack(part)) for part in zip(*rows, strict=True)))

    @abstractmethod
    def tokenised(self, item: Relation) -> tuple[np.ndarray, ...]:
        """Return the integers of one sentence."""

    @abstractmethod
    def encoded(self, *parts: Tensor) -> Tensor:
        """Encode many sentences."""


def learning(encoder: Encoder) -> list[nn.Parameter]:
    """Return the trainable weights."""
    return [weight for weight in encoder.parameters() if weight.requires_grad]


class ToolkitCNN(ToolkitWay):
    """CNN on words, two positions and a mask, each 128 long; the table of words has a dense gradient."""

    def __init__(self, encoder: RelationCNN) -> None:
        self.encoder, self.weights = encoder, learning(encoder)

    def tokenised(self, item: Relation) -> tuple[np.ndarray, ...]:
        """Look up the words one by one."""
        own = self.encoder
        words = np.full(LENGTH, own.padding)
        places = np.zeros((2, LENGTH), np.int64)
        for place, word in enumerate(item["tokens"][:LENGTH]):
            words[place] = own.rows.get(uncased(word), own.unknown)
            places[:, place] = place - item["head"][0] + LENGTH, place - item["tail"][0] + LENGTH
        return words, places

    def encoded(self, *parts: Tensor) -> Tensor:
        """Convolve all 128 positions."""
        words, places = parts
        own = self.encoder
        embedded = [F.embedding(words, own.words), *(table(places[:, n]) for n, table in enumerate(own.places))]
        hidden: Tensor = own.convolution(torch.cat(embedded, -1).mT).relu()
        return (hidden * (words != own.padding)[:, None]).amax(-1)


class ToolkitTransformer(ToolkitWay):
    """Transformer on pieces and a mask, each 128 long; the mean, or if trained the vectors at the start markers."""

    def __init__(self, encoder: RelationTransformer) -> None:
        self.encoder, self.tokenizer, self.weights = encoder, encoder.tokenizer, learning(encoder)
        self.markers = self.tokenizer.convert_tokens_to_ids([start for start, _ in MARKERS])

    def tokenised(self, item: Relation) -> tuple[np.ndarray, ...]:
        """Mark, tokenise and pad one sentence."""
        [words], _ = self.encoder.read([item])
        ids = self.tokenizer(words, is_split_into_words=True)["input_ids"]
        padded, mask = np.full(LENGTH, self.tokenizer.pad_token_id), np.zeros(LENGTH, np.int64)
        padded[: len(ids)], mask[: len(ids)] = ids[:LENGTH], 1
        starts = [] if self.encoder.frozen else [ids.index(marker) for marker in self.markers]
        return padded, mask, np.array(starts, np.int64)

    def encoded(self, *parts: Tensor) -> Tensor:
        """Run the transformer over all 128 positions."""
        ids, mask, starts = parts
        hidden: Tensor = self.encoder.model(input_ids=ids, attention_mask=mask).last_hidden_state
        if self.encoder.frozen:
            return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return hidden[torch.arange(len(ids))[:, None], starts].flatten(1)


def evaluation(
    name: str,
    predictor: Predictor,
    toolkit: ToolkitWay,
    pool: Pool,
    quick: bool,
    target: float = 80,
    head: Head = nearest_class,
) -> Measurement:
    """Time 5,000 episodes, encoded and scored; the toolkit, with its `head`, runs 50 of them, spread over our time."""
    n_episodes, repeats = (100, 2) if quick else (5000, 2)
    n_anew = 2 if quick else 50
    episodes = EpisodeSampler(pool, way=WAY, shot=SHOT, query=QUERY).draw(n_episodes)
    encoder = predictor.features.encoder.eval()

    def both() -> tuple[float, float, EncodedPool]:
        """Tokenise, encode and score; after each batch our clock stops and the baseline runs for a while."""
        anew: list[float] = []

        def turn(done: int, total: int) -> None:
            while len(anew) < n_anew * done // total:
                anew.append(seconds(partial(predict_anew, toolkit, pool, episodes[len(anew)], head)))

        start = perf_counter()
        encoded = EncodedPool(pool, encoder, encoder.encode_all(encoder.prepare(pool.items), turn))
        measure_episodes(predictor, encoded, episodes)
        return perf_counter() - start - sum(anew), sum(anew) * n_episodes / n_anew, encoded

    predict_anew(toolkit, pool, episodes[0], head)  # to warm up
    ours, theirs, (encoded, *_) = zip(*(both() for _ in range(repeats)), strict=True)
    times, few = Times(ours, theirs), episodes[:2]
    predicted = torch.cat([block.labels for block in predict_episodes(predictor, encoded, few)])
    anew = torch.stack([predict_anew(toolkit, pool, episode, head) for episode in few])
    return times.measurement(
        f"{name}, {n_episodes:,} evaluation episodes",
        "the FewRel toolkit's way",
        ">=",
        target,
        data=str(pool),
        baseline_extrapolated_from_episodes=n_anew,
        agreement=(predicted == anew).double().mean().item(),
    )


@torch.inference_mode()
def predict_anew(toolkit: ToolkitWay, pool: Pool, episode: Episode, head: Head = nearest_class) -> Tensor:
    """Tokenise and encode the sentences of an episode, and classify its queries: (Q,)."""
    vectors = toolkit([pool.items[i] for i in (*episode.support, *episode.query)])
    return head(vectors[: len(episode.support)], vectors[len(episode.support) :], episode)


def _training_step(
    name: str, encoder: Encoder, toolkit: ToolkitWay, pool: Pool, target: float, quick: bool
) -> Measurement:
    """Time training steps, alternately with those of the toolkit, which has weights of its own."""
    sampler = EpisodeSampler(pool, way=WAY, shot=SHOT, query=QUERY)
    method = make_method("protonet", feature_shape=encoder.feature_shape)
    learner = Learner.of(method, encoder).train()
    groups = learner.parameter_groups(["encoder"])
    config = Optim(name="sgd", lr=1e-4)  # too little to change what is measured
    optimisers = [make_optimiser(config, group) for group in groups.values()]
    dense = torch.optim.SGD(toolkit.weights, lr=1e-4, weight_decay=1e-5)
    steps = iter(range(1_000_000))

    def ours() -> None:
        _learn(learner(*learner.collate(pool, [sampler[next(steps)]]))["cls"], optimisers)

    def plain() -> None:
        episode = sampler[next(steps)]
        vectors = toolkit([pool.items[i] for i in (*episode.support, *episode.query)])
        support, query = vectors[: WAY * SHOT], vectors[WAY * SHOT :]
        centers = support.view(WAY, SHOT, -1).mean(1)
        logits = -((query[:, None] - centers) ** 2).sum(-1)
        _learn(F.cross_entropy(logits, torch.arange(WAY).repeat_interleave(QUERY)), [dense])

    times = in_turns(ours, plain, 3 if quick else 15)
    label = f"{name}, training step, {WAY}-way {SHOT}-shot"
    return times.measurement(label, "the FewRel toolkit's way", ">=", target, query=QUERY, data=str(pool))


def _learn(loss: Tensor, optimisers: Sequence[Optimizer]) -> None:
    for optimiser in optimisers:
        optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    for optimiser in optimisers:
        optimiser.step()


def fewrel_pool(quick: bool) -> Pool:
    """Open val_wiki if it is available, else build random sentences of similar lengths."""
    try:
        pool = open_pool("fewrel", "val")
    except DataError:
        pool = made_up()
    if not quick:
        return pool
    few = np.flatnonzero(np.arange(len(pool)) % 700 < 12)
    return Pool([pool.items[i] for i in few], pool.labels[few], pool.class_names, name=pool.name, split=pool.split)


def made_up(classes: int = 16, each: int = 700) -> Pool:
    """Draw sentences of 10 to 36 random words with a head and a tail, as long as FewRel's."""
    random = np.random.default_rng(0)
    vocabulary = ["the", "of", "and", "in", "to", "a", "was", "is", "for", "on", "as", "by", "with", "he", "that", "at"]
    items: list[Relation] = []
    for length in random.integers(10, 37, size=classes * each).tolist():
        head, tail = random.choice(length, 2, replace=False).tolist()
        items.append({"tokens": random.choice(vocabulary, length).tolist(), "head": [head], "tail": [tail]})
    names = tuple(f"relation {n}" for n in range(classes))
    return Pool(items, np.repeat(np.arange(classes), each), names, name="made-up relations")
