"""Heads of relation baselines, against the FewRel toolkit's, which encode every episode again and expand all pairs.

The toolkit's heads are written out here with the same weights: every query is paired with every class, or with every
support example, before anything is computed of either. REGRAB is no part of the toolkit; the code released with it
expands in the same way.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.measure import Measurement
from benchmarks.relations import SHOT, WAY, Head, ToolkitCNN, evaluation, fewrel_pool
from hyperproto.encoders.relation_cnn import RelationCNN
from hyperproto.episodes import Episode
from hyperproto.evaluation import Predictor
from hyperproto.methods import METHODS, Method, make_method
from hyperproto.methods.mtb import MTB
from hyperproto.methods.proto_hatt import ProtoHATT
from hyperproto.methods.regrab import REGRAB

TARGET = 5.0


def relation_baselines(quick: bool) -> list[Measurement]:
    """Time an evaluation on val_wiki with the CNN, for each method there is."""
    pool = fewrel_pool(quick)
    torch.manual_seed(0)
    encoder = RelationCNN()
    measured = []
    for name in (name for name in HEADS if name in METHODS.names()):
        predictor = Predictor.of(_method(name, encoder.feature_shape), encoder)
        head = HEADS[name](predictor.method)
        measured.append(evaluation(name, predictor, ToolkitCNN(encoder), pool, quick, TARGET, head))
    return measured


def _method(name: str, shape: tuple[int, ...]) -> Method:
    """Build a method with random weights for the episodes of the benchmark."""
    traits = METHODS.get(name).traits
    fixed = {key: size for key, size in (("way", WAY), ("shot", SHOT)) if f"any-{key}" not in traits}
    return make_method(name, feature_shape=shape, **fixed, **OPTIONS.get(name, {})).eval()


def _expanded_means(method: Method) -> Head:
    """Score as the toolkit's ProtoNet: the difference of every query and class."""

    def predict(support: Tensor, query: Tensor, episode: Episode) -> Tensor:
        centers = support.view(1, WAY, SHOT, -1).mean(2).expand(len(query), -1, -1)  # (Q, N, D)
        distances = (query[:, None].expand_as(centers) - centers).pow(2).sum(-1)  # (Q, N)
        return distances.argmin(1)

    return predict


def _expanded_hatt(method: Method) -> Head:
    """Score as the toolkit's Proto-HATT: attention of every query and support example, expanded before the layer."""
    assert isinstance(method, ProtoHATT)
    attention, first, second, last = method.attention, method.first, method.second, method.last
    pad = nn.ZeroPad2d((0, 0, (SHOT - 1) // 2, SHOT // 2))

    def predict(support: Tensor, query: Tensor, episode: Episode) -> Tensor:
        classes = support.view(WAY, 1, SHOT, -1)
        weights: Tensor = last(second(pad(first(pad(classes)).relu())).relu()).relu().view(WAY, -1)  # (N, D)
        examples = support.view(1, WAY, SHOT, -1).expand(len(query), -1, -1, -1)  # (Q, N, K, D)
        queries = query[:, None, None].expand_as(examples)  # (Q, N, K, D)
        alike = (attention(examples) * attention(queries)).tanh().sum(-1).softmax(-1)  # (Q, N, K)
        prototypes: Tensor = (examples * alike[..., None]).sum(2)  # (Q, N, D)
        distances = ((query[:, None] - prototypes) ** 2 * weights).sum(-1)  # (Q, N)
        return distances.argmin(1)

    return predict


def _expanded_products(method: Method) -> Head:
    """Score as the toolkit's MTB: the product of every query and support example, and the largest of each class."""
    assert isinstance(method, MTB)
    norm = method.norm

    def predict(support: Tensor, query: Tensor, episode: Episode) -> Tensor:
        examples = norm(support)[None].expand(len(query), -1, -1)  # (Q, N K, D)
        products: Tensor = (examples * norm(query)[:, None]).sum(-1)  # (Q, N K)
        return products.view(len(query), WAY, SHOT).amax(-1).argmax(1)

    return predict


def _expanded_samples(method: Method) -> Head:
    """Score as REGRAB without a prior: every sample of every prototype and support example, by coordinate.

    Both ways have the same noise.
    """
    assert isinstance(method, REGRAB)
    noise: dict[int, Tensor] = {}  # of each class, (T, M, D)

    def predict(support: Tensor, query: Tensor, episode: Episode) -> Tensor:
        for number in episode.classes.tolist():
            noise.setdefault(number, method._class_noise(number, (method.steps, method.samples, query.shape[-1])))
        drawn = torch.stack([noise[number] for number in episode.classes.tolist()], 2)  # (T, M, N, D)
        support, query = (F.layer_norm(x, x.shape[-1:]) for x in (support, query))
        examples = support[None, :, None].expand(method.samples, -1, WAY, -1)  # (M, N K, N, D)
        truth = torch.eye(WAY).repeat_interleave(SHOT, 0)  # (N K, N)
        v = support.view(WAY, SHOT, -1).mean(1).expand(method.samples, -1, -1)  # (M, N, D)
        for step in range(method.steps):
            size = method.eps * method.rho**step
            shares = ((examples * v[:, None]).sum(-1) / method.tau).softmax(-1)  # (M, N K, N)
            gradient = ((truth - shares)[..., None] * examples).mean(1)  # (M, N, D)
            v = v + size / 2 * gradient + size**0.5 * drawn[step]
        logits: Tensor = (query[None, :, None] * v[:, None]).sum(-1) / query.shape[-1] ** 0.5  # (M, Q, N)
        return logits.softmax(-1).mean(0).argmax(1)

    return predict


HEADS: dict[str, Callable[[Method], Head]] = {
    "proto-adv": _expanded_means,
    "proto-hatt": _expanded_hatt,
    "mtb": _expanded_products,
    "regrab": _expanded_samples,
}
OPTIONS: dict[str, dict[str, Any]] = {"regrab": {"prior_weight": 0.0}}
