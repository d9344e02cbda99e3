"""Heads of relation baselines our way, against the FewRel toolkit's: encode each episode anew, expand, then compare.

The toolkit's heads are written out here with the same weights: every query is paired with every class, or with every
support example, before anything is computed of either.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.batched_scoring import Predict
from benchmarks.measure import Measurement
from benchmarks.relations import SHOT, WAY, ToolkitCNN, evaluation, fewrel_pool
from hyperproto.encoders.relation_cnn import RelationCNN
from hyperproto.evaluation import Predictor
from hyperproto.methods import METHODS, Method, make_method

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
    """A method with random weights, made for the episodes of the benchmark."""
    traits = METHODS.get(name).traits
    fixed = {key: size for key, size in (("way", WAY), ("shot", SHOT)) if f"any-{key}" not in traits}
    return make_method(name, feature_shape=shape, **fixed).eval()


def _expanded_means(method: Method) -> Predict:
    """ProtoNet: the difference of every query to every class."""

    def predict(support: Tensor, query: Tensor) -> Tensor:
        centers = support.view(1, WAY, SHOT, -1).mean(2).expand(len(query), -1, -1)  # (Q, N, D)
        distances = (query[:, None].expand_as(centers) - centers).pow(2).sum(-1)  # (Q, N)
        return distances.argmin(1)

    return predict


def _expanded_hatt(method: Method) -> Predict:
    """Proto-HATT: attention between every query and every support example, each expanded before its linear layer."""
    weigh: Callable[[Tensor], Tensor] = method.feature_weights  # type: ignore[assignment]
    attention: Callable[[Tensor], Tensor] = method.attention  # type: ignore[assignment]

    def predict(support: Tensor, query: Tensor) -> Tensor:
        classes = support.view(1, WAY, SHOT, -1)
        weights = weigh(classes)  # (1, N, D)
        examples = classes.expand(len(query), -1, -1, -1)  # (Q, N, K, D)
        queries = query[:, None, None].expand_as(examples)  # (Q, N, K, D)
        alike = (attention(examples) * attention(queries)).tanh().sum(-1).softmax(-1)  # (Q, N, K)
        prototypes = (examples * alike[..., None]).sum(2)  # (Q, N, D)
        distances = ((query[:, None] - prototypes) ** 2 * weights).sum(-1)  # (Q, N)
        return distances.argmin(1)

    return predict


def _expanded_products(method: Method) -> Predict:
    """MTB: the product of every query with every support example, and the largest of each class."""
    norm: Callable[[Tensor], Tensor] = method.norm  # type: ignore[assignment]

    def predict(support: Tensor, query: Tensor) -> Tensor:
        examples = norm(support)[None].expand(len(query), -1, -1)  # (Q, N K, D)
        products = (examples * norm(query)[:, None]).sum(-1)  # (Q, N K)
        return products.view(len(query), WAY, SHOT).amax(-1).argmax(1)

    return predict


HEADS: dict[str, Callable[[Method], Predict]] = {
    "proto-adv": _expanded_means,
    "proto-hatt": _expanded_hatt,
    "mtb": _expanded_products,
}
