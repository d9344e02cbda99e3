"""REGRAB: prototypes sampled from a posterior with a prior from a graph of relations."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any, ClassVar, Literal
from warnings import warn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperproto.data import Pool
from hyperproto.encoders.class_names import ClassNames
from hyperproto.errors import ConfigError, DataError
from hyperproto.files import read_utf8, split_lines
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import in_blocks
from hyperproto.methods.task import Task
from hyperproto.regions.arrays import unit

NEAREST = 9  # number of nearest neighbours that a relation is joined with
FILES = ("relations.txt", "vectors.npy", "edges.tsv")


@dataclass(frozen=True, eq=False)
class RelationGraph:
    """Weighted graph of relations; `nodes` maps names to rows, `adjacency` includes self loops."""

    nodes: dict[str, int]
    vectors: Tensor  # (C, d_r)
    adjacency: Tensor  # (C, C)

    @classmethod
    def of_texts(cls, texts: dict[str, str], read: Callable[[Sequence[str]], Tensor]) -> "RelationGraph":
        """Build the graph of relations with texts; `read` encodes texts to vectors."""
        vectors = read(list(texts.values())).detach()
        return cls({name: node for node, name in enumerate(texts)}, vectors, normalised_adjacency(vectors))

    @classmethod
    def read(cls, folder: str | Path) -> "RelationGraph":
        """Read a graph from files: relations by line, vectors, and edges `from, to, weight`; duplicates add up."""
        folder = Path(folder).expanduser()
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise ConfigError(
                f"graph = {str(folder)!r}: no {', '.join(missing)} there; name a folder with {', '.join(FILES)}, or "
                'take graph = "names"'
            )
        relations, table, edges = (folder / name for name in FILES)
        nodes = {name: node for node, name in enumerate(split_lines(read_utf8(relations)))}
        try:
            vectors = torch.from_numpy(np.load(table, allow_pickle=False).astype(np.float32))
        except (ValueError, TypeError, AttributeError, OSError) as error:  # AttributeError: an .npz file
            raise DataError(f"{table}: no array of numbers ({error}); save it with numpy.save") from None
        if vectors.ndim != 2 or len(vectors) != len(nodes):
            raise DataError(f"{table}: shape {tuple(vectors.shape)}, but {relations.name} names {len(nodes)} relations")
        adjacency = torch.zeros(len(nodes), len(nodes))
        for number, line in enumerate(split_lines(read_utf8(edges)), start=1):
            try:
                start, end, weight = line.split("\t")
                adjacency[nodes[start], nodes[end]] += float(weight)
            except (ValueError, KeyError) as error:
                raise DataError(f"{edges}, line {number}: not FROM, TO, WEIGHT with tabs ({error}); fix it") from None
        return cls(nodes, vectors, adjacency)

    def rows_of(self, names: Sequence[str]) -> Tensor:
        """Return the rows of the adjacency of some relations, (n, C); zeros for relations that are not nodes."""
        rows = self.adjacency.new_zeros(len(names), len(self.nodes))
        known = [place for place, name in enumerate(names) if name in self.nodes]
        rows[known] = self.adjacency[[self.nodes[names[place]] for place in known]]
        return rows


def nearest_neighbours(vectors: Tensor, count: int = NEAREST) -> Tensor:
    """Return a (C, C) mask of pairs in which one node is among the nearest of the other by cosine, without loops."""
    cosine = _cosine(vectors).fill_diagonal_(-torch.inf)
    nearest = cosine.topk(min(count, len(cosine) - 1), dim=1).indices
    near = torch.zeros_like(cosine, dtype=torch.bool).scatter_(1, nearest, value=True)
    return near | near.mT


def normalised_adjacency(vectors: Tensor) -> Tensor:
    """Return E_ij / sqrt(e_i e_j), (C, C): E is the cosine of neighbours, at least 0, and 1 for self loops."""
    weights = _cosine(vectors).clamp(min=0).where(nearest_neighbours(vectors), 0.0).fill_diagonal_(1.0)
    scale = weights.sum(1).rsqrt()
    return scale[:, None] * weights * scale


def _cosine(vectors: Tensor) -> Tensor:
    directions: Tensor = unit(vectors)
    return directions @ directions.mT


Noise = Callable[[int, Tensor], Tensor]  # noise of a step for samples (B, m): (B, m, N, D)


@dataclass(frozen=True, eq=False)
class PoolGraph:
    """Graph quantities of the classes of one pool."""

    pool: Pool
    names: ClassNames | None
    rows: Tensor  # (classes, C) adjacency of each class; zeros if it is not a node
    smoothed: Tensor  # (C, d_r) A R
    inputs: Tensor  # (classes, d_r) rows R


class REGRAB(Method):
    """Qu et al., "Few-shot Relation Extraction via Bayesian Meta-Learning on Relation Graphs", ICML 2020.

    The prior of a prototype is a normal distribution around tanh(A R W' + b) of its class, a graph convolution of the
    relations' vectors R (`layers = 2`: two of them). `samples` chains start at the class mean plus `prior_weight` times
    the prior mean minus `mean_weight` times the mean of the support, and take `steps` Langevin steps of size eps rho^t
    on the support's likelihood. Class probabilities of a query are averaged over the chains; training averages their
    logarithms. The support gets no gradient, as in the released code.

    `graph = "names"` is a reconstruction, since the origin of the paper's vectors is not published. Its nodes are all
    texts of the source of names and the pool's classes, including test classes; each is joined with its 9 nearest by
    cosine. `graph = FOLDER` reads the released files. A class that is not a node has the prior mean tanh(b).
    `prior_weight = 0` omits the graph, unless `update` is "exact".

    `update = "released"` follows the authors' code: the mean of the likelihood's gradient over the support, without
    1 / `likelihood_temperature` (the paper's tau), and the prior times `prior_weight`. "exact" is the gradient of the
    log posterior. `normalise = "layer"` is our addition: layer normalisation of all vectors, and logits divided by
    sqrt(D); "none" is the released version.

    Noise is random in training. In evaluation it depends on `sample_seed` and the class only, so that scores are
    reproducible and do not depend on the batch.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant"})
    transforms: ClassVar[tuple[str, ...] | None] = ("none",)
    needs_names = True  # unless the graph is read from files, or omitted

    def __init__(
        self,
        *,
        graph: str = "names",
        relation_size: int = 384,
        layers: Literal[1, 2] = 1,
        normalise: Literal["layer", "none"] = "layer",
        samples: int = 10,
        steps: int = 5,
        eps: float = 0.1,
        rho: float = 0.01,
        likelihood_temperature: float = 10.0,
        prior_weight: float = 0.1,
        mean_weight: float = 0.0,
        update: Literal["released", "exact"] = "released",
        sample_seed: int = 0,
        dropout: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        for name, value in {"steps": steps, "eps": eps, "rho": rho, "prior_weight": prior_weight}.items():
            if not value >= 0:
                raise ConfigError(f"REGRAB: {name} = {value} must be 0 or more")
        if samples < 1 or not likelihood_temperature > 0:
            raise ConfigError("REGRAB: samples must be at least 1, and likelihood_temperature above 0")
        if not 0 <= dropout < 1:
            raise ConfigError(f"REGRAB: dropout = {dropout} must be at least 0 and below 1")
        [size] = self.feature_shape
        self.normalise, self.update = normalise, update
        self.samples, self.steps, self.eps, self.rho = samples, steps, eps, rho
        self.tau = likelihood_temperature
        self.prior_weight, self.mean_weight, self.sample_seed = prior_weight, mean_weight, sample_seed
        self.dropout = nn.Dropout(dropout)
        self.has_prior = prior_weight > 0 or (update == "exact" and steps > 0)
        self.needs_names = self.has_prior and graph == "names"
        self._released = RelationGraph.read(graph) if self.has_prior and graph != "names" else None
        self._graph: PoolGraph | None = None
        if self.has_prior:
            self.relation_size = relation_size if self._released is None else self._released.vectors.shape[1]
            self.hidden = nn.Linear(self.relation_size, self.relation_size) if layers == 2 else None
            self.prior = nn.Linear(self.relation_size, size)  # W, b

    def read_pool(self, pool: Pool, names: ClassNames | None) -> None:
        """Build or look up the graph of the pool's classes, once for each pool."""
        if not self.has_prior or (self._graph and self._graph.pool is pool and self._graph.names is names):
            return
        graph = self._released or self._names_graph(pool, names)
        unknown = [name for name in pool.class_names if name not in graph.nodes]
        if unknown:
            warn(
                f"REGRAB: {len(unknown)} of {pool.n_classes} classes of {pool} are not in the graph of relations and "
                f"have no prior of their own ({', '.join(unknown[:3])}{', ...' if unknown[3:] else ''})",
                stacklevel=2,
            )
        outside = [""] * (pool.n_labels - pool.n_classes)
        rows = graph.rows_of([*pool.class_names, *outside])
        parts = (rows, graph.adjacency @ graph.vectors, rows @ graph.vectors)
        self._graph = PoolGraph(pool, names, *(part.to(self.log_temperature.device) for part in parts))

    def _names_graph(self, pool: Pool, names: ClassNames | None) -> RelationGraph:
        if names is None:
            raise ConfigError('REGRAB reads the names of classes; give the recipe [names], or graph = "FOLDER"')
        if not names.frozen:
            raise ConfigError(
                "REGRAB builds its graph once, of names whose vectors do not change; "
                'give [names] a frozen encoder: encoder = "minilm"'
            )
        texts = zip(pool.class_names, names.texts, strict=False)  # O, the last row, has no name
        graph = RelationGraph.of_texts(names.known | {name: text for name, text in texts if text}, names.read)
        found = graph.vectors.shape[1]
        if found != self.relation_size:
            raise ConfigError(
                f"REGRAB: vectors of names have size {found}; set relation_size = {found}, not {self.relation_size}"
            )
        return graph

    def scores(self, task: Task) -> Tensor:
        """Return the logarithm of class probabilities averaged over the samples, (B, Q, N)."""
        logits = self.logits(self._sampled_logits(task))  # (B, M, Q, N)
        average = logits.log_softmax(-1).logsumexp(1) - log(self.samples)
        return average * self.log_temperature.exp()

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the mean cross entropy of queries over all samples."""
        logits = self.logits(self._sampled_logits(task))
        labels = self.labels_of(task)[:, None].expand(logits.shape[:-1])  # (B, M, Q)
        return {"cls": F.cross_entropy(logits.flatten(0, 2), labels.flatten(), ignore_index=-1)}

    def param_groups(self) -> dict[str, Group]:
        """Return the graph convolution as one group."""
        layers = [self.hidden, self.prior] if self.has_prior else []
        parameters = [p for layer in layers if layer is not None for p in layer.parameters()]
        return {"head": Group(parameters)} if parameters else {}

    def _sampled_logits(self, task: Task) -> Tensor:
        """Return the inner products of queries with the prototypes of each sample, (B, M, Q, N)."""
        support, query = self._read(task.support).detach(), self._read(task.query)
        members = task.members()  # (B, S, N)
        prior = self.prior_mean(task)  # (B, N, D)
        start = self.start(support, members, prior)
        noise = self._fresh_noise(task) if self.training else self._seeded_noise(task)
        scale = support.shape[-1] ** -0.5 if self.normalise == "layer" else 1.0

        def logits(samples: Tensor) -> Tensor:
            v = start[:, None].expand(-1, samples.shape[1], -1, -1)  # (B, m, N, D)
            for step in range(self.steps):
                size = self.eps * self.rho**step
                v = v + size / 2 * self.drift(v, support, members, prior) + size**0.5 * noise(step, samples)
            return scale * torch.einsum("bqd,bmnd->bmqn", query, v)

        samples = torch.arange(self.samples, device=query.device).expand(len(query), -1)
        return in_blocks(logits, samples, 2 * start[0].numel())  # prototypes, drift and noise

    def _read(self, x: Tensor) -> Tensor:
        """Normalise vectors as `normalise` says, with dropout in training."""
        normalised = F.layer_norm(x, x.shape[-1:]) if self.normalise == "layer" else x
        dropped: Tensor = self.dropout(normalised)
        return dropped

    def prior_mean(self, task: Task) -> Tensor | None:
        """Return the prior mean of each class, tanh(A R W' + b), (B, N, D); None without a prior."""
        if not self.has_prior:
            return None
        if self._graph is None:
            raise ConfigError("REGRAB has no graph yet; call read_pool(pool, names) before it scores episodes")
        inputs = self._graph.inputs[task.classes]  # (B, N, d_r)
        if self.hidden is not None:
            inputs = self._graph.rows[task.classes] @ self.hidden(self._graph.smoothed).relu()
        mean: Tensor = self.prior(inputs).tanh()
        return mean

    def start(self, support: Tensor, members: Tensor, prior: Tensor | None) -> Tensor:
        """Return the start of all chains, (B, N, D): class means, shifted by the prior and the support's mean."""
        means = torch.einsum("bsn,bsd->bnd", members, support) / members.sum(1).clamp(min=1)[..., None]
        if self.mean_weight:
            real = members.sum(-1)  # (B, S)
            middle = torch.einsum("bs,bsd->bd", real, support) / real.sum(1).clamp(min=1)[:, None]
            means = means - self.mean_weight * middle[:, None]
        return means if prior is None else means + self.prior_weight * prior

    def drift(self, v: Tensor, support: Tensor, members: Tensor, prior: Tensor | None) -> Tensor:
        """Return the drift of prototypes v (B, M, N, D), twice the change in a step of size 1 without noise.

        Only the prior gets a gradient.
        """
        with torch.no_grad():
            shares = (torch.einsum("bsd,bmnd->bmsn", support, v) / self.tau).softmax(-1)
            real = members.sum(-1)  # (B, S) 0 on padding
            wrong = members[:, None] - shares * real[:, None, :, None]  # (B, M, S, N)
            gradient = torch.einsum("bmsn,bsd->bmnd", wrong, support)
            count = real.sum(1).clamp(min=1)[:, None, None, None]
            gradient /= self.tau if self.update == "exact" else count
        weight = 1.0 if self.update == "exact" else self.prior_weight
        return gradient if prior is None else gradient + weight * (prior[:, None] - v)

    def _fresh_noise(self, task: Task) -> Noise:
        shape, like = (task.way, task.query.shape[-1]), task.query
        return lambda step, samples: torch.randn(*samples.shape, *shape, dtype=like.dtype, device=like.device)

    def _seeded_noise(self, task: Task) -> Noise:
        """Return noise from one generator per class: equal noise of all classes would cancel in the softmax."""
        drawn, place = torch.unique(task.classes, return_inverse=True)  # (classes,), (B, N)
        shape = (self.steps, self.samples, task.query.shape[-1])
        table = torch.stack([self._class_noise(c, shape) for c in drawn.tolist()]).to(task.query)

        def noise(step: int, samples: Tensor) -> Tensor:
            return table[place[:, None, :], step, samples[:, :, None]]

        return noise

    def _class_noise(self, number: int, shape: tuple[int, ...]) -> Tensor:
        seed = int.from_bytes(hashlib.sha256(f"{self.sample_seed}/{number}".encode()).digest()[:7])
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
