"""LEO: class weights decoded from latent codes; gradient steps on the support adapt codes, then weights."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hyperproto.errors import ConfigError
from hyperproto.methods.base import Group, Method
from hyperproto.methods.parts import LEAST_DEVIATION, Dropout, in_blocks, weight_deviation
from hyperproto.methods.task import Task
from hyperproto.regions.arrays import unit

MOST_RAW = 3.0  # bound of raw deviations (a deviation of 19): larger ones make inner steps diverge in training


@dataclass(frozen=True, eq=False)
class Adapted:
    """Result of the inner steps."""

    weights: Tensor  # (B, N, D) of the linear classifier, after all steps
    before: Tensor  # (B, N, H) codes before the first step
    after: Tensor  # (B, N, H) codes after the last step
    kl: Tensor  # sampled divergence of the codes' distribution from N(0, 1); 0 in evaluation


class LEO(Method):
    """Rusu et al., "Meta-Learning with Latent Embedding Optimization", ICLR 2019.

    A relation network maps all pairs of support vectors to a code of size `code_size` for each class; a linear decoder
    maps the code to the weights of the class. `code_steps` gradient steps on the support's cross entropy update the
    codes, each with a new decoding; then `weight_steps` steps update the decoded weights. The step sizes are learned
    for each coordinate, starting from `code_rate` and `weight_rate`. The loss of the queries is differentiated through
    all steps; the inner gradients are explicit formulas, so that no step needs autograd.

    In training, codes and weights are samples of Gaussians, and `dropout` acts on the vectors with a new mask at each
    use; in evaluation both are means. The loss adds `kl_weight` times the divergence of the codes from N(0, 1),
    `code_weight` times the squared change of the codes, `decay_weight` times half the squared weights, and
    `orth_weight` times the squared cosines between different rows of the decoder. The method is meant for vectors of
    length 1 of a frozen encoder. Published values for miniImageNet (1 shot is the default):

    | shots | dropout | kl_weight | code_weight | decay_weight | orth_weight |
    | 5 | 0.3003 | 0.4664 | 2.662e-7 | 8.54e-9 | 1.524e-3 |

    The released code keeps a copy of code and weights for each of the K examples of a class and averages their logits.
    Without noise this equals one copy with the support's loss averaged over each class, as here, also for unequal shots
    (reconstruction). With noise one sample is drawn with 1 / sqrt(K) of the deviation (reconstruction); the divergence
    is that of the full deviation. Deviations may grow exponentially over inner steps and give NaN, which the released
    code replaces by the weight decay. Here deviations of sampled weights are bounded (MOST_RAW), and NaN is an error.
    """

    traits = frozenset({"any-way", "any-shot", "unequal-shots", "equivariant"})
    transforms = ("unit",)

    def __init__(
        self,
        *,
        code_size: int = 64,
        code_steps: int = 5,
        weight_steps: int = 5,
        code_rate: float = 1.0,
        weight_rate: float = 0.001,
        dropout: float = 0.3077,
        kl_weight: float = 0.7561,
        code_weight: float = 5.757e-6,
        decay_weight: float = 3.623e-10,
        orth_weight: float = 0.1881,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if code_size < 1:
            raise ConfigError(f"LEO: code_size = {code_size} must be at least 1, such as 64")
        steps = {"code_steps": code_steps, "weight_steps": weight_steps}
        penalties = {"kl": kl_weight, "code": code_weight, "decay": decay_weight, "orth": orth_weight}
        for name, value in {**steps, **{f"{name}_weight": value for name, value in penalties.items()}}.items():
            if not value >= 0:
                raise ConfigError(f"LEO: {name} = {value} must be 0 or more")
        if not 0 <= dropout < 1:
            raise ConfigError(f"LEO: dropout = {dropout} must be at least 0 and below 1, such as 0.3")
        [dim] = self.feature_shape
        self.code_steps, self.weight_steps = code_steps, weight_steps
        self.kl_weight, self.code_weight = kl_weight, code_weight
        self.decay_weight, self.orth_weight = decay_weight, orth_weight
        self.dropout = Dropout(dropout)
        self.embedding = _glorot(dim, code_size)  # W_e
        self.relation = nn.ParameterList(_glorot(2 * code_size, 2 * code_size) for _ in range(3))
        self.decoder = _glorot(code_size, 2 * dim)  # W_d: means, then raw deviations
        self.code_rate = nn.Parameter(torch.full((code_size,), code_rate))
        self.weight_rate = nn.Parameter(torch.full((dim,), weight_rate))
        self._watched: tuple[Tensor, list[Tensor], Tensor] | None = None  # codes, logits and labels of the last step

    def scores(self, task: Task) -> Tensor:
        """Return the scores of the adapted linear classifier, (B, Q, N)."""
        return self._scores(task, self.adapted(task).weights)

    def loss(self, task: Task) -> dict[str, Tensor]:
        """Return the cross entropy of the queries after adaptation, and four penalties."""
        found = self.adapted(task)
        matrices = [self.embedding, *self.relation, self.decoder]
        squares = torch.stack([matrix.square().sum() for matrix in matrices]).sum()
        return {
            "cls": self.cross_entropy(self._scores(task, found.weights), task),
            "kl": self.kl_weight * found.kl,
            "code": self.code_weight * (found.after.detach() - found.before).square().mean(),
            "decay": self.decay_weight * squares / 2,
            "orth": self.orth_weight * self.row_correlation(),
        }

    def adapted(self, task: Task) -> Adapted:
        """Encode the support into codes, and run the inner steps."""
        member = task.members()  # (B, S, N)
        count = member.sum(1).clamp(min=1)  # (B, N)
        share = member / count[:, None]  # 1 / K_n for the examples of class n, else 0
        less = count.rsqrt()[..., None]  # (B, N, 1): deviation of the mean of K samples, relative to one
        mean, raw = self.codes(task.support, share).chunk(2, -1)  # (B, N, H) each
        code, kl, logits = mean, mean.new_zeros(()), []
        if self.training:
            deviation, noise = torch.expm1(raw).clamp(min=LEAST_DEVIATION), torch.randn_like(mean)
            code, kl = mean + less * deviation * noise, _divergence(mean, deviation, noise)
        before = code
        for _ in range(self.code_steps):
            weights, slope = self.decoded(code, less)
            gradient, found = self.gradient(task.support, weights, share)
            code = code - self.code_rate * self.to_code(gradient, slope)
            logits.append(found)
        weights, _ = self.decoded(code, less)
        for _ in range(self.weight_steps):
            gradient, found = self.gradient(task.support, weights, share)
            weights = weights - self.weight_rate * gradient
            logits.append(found)
        if self.training:
            logits.append(task.support @ weights.mT)
            self._watched = mean.detach(), [found.detach() for found in logits], share.detach()
        return Adapted(weights, before, code, kl)

    def codes(self, support: Tensor, share: Tensor) -> Tensor:
        """Return mean and raw deviation of each class's code, (B, N, 2 H), by the relation network on pairs.

        `share` (B, S, N) averages over a class. The last layer is linear and is applied to means over pairs.
        """
        first, second, last = self.relation
        hidden = self.dropout(support) @ self.embedding  # (B, S, H)
        left, right = (hidden @ part for part in first.chunk(2))  # (B, S, 2 H) each: [h_i ; h_j] W = left_i + right_j
        real = (share.sum(-1) > 0).to(support)
        real = real / real.sum(1, keepdim=True).clamp(min=1)  # (B, S)

        def related(left: Tensor) -> Tensor:
            pairs = ((left[:, :, None] + right[:, None]).relu() @ second).relu()  # (B, rows, S, 2 H)
            mean: Tensor = (real[:, None, None] @ pairs)[:, :, 0]
            return mean

        means = in_blocks(related, left, 2 * right[0].numel())  # (B, S, 2 H)
        codes: Tensor = share.mT @ means @ last
        return codes

    def decoded(self, code: Tensor, less: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return weights (B, N, D) of a code, and their derivative by the raw deviation (None in evaluation)."""
        dim = len(self.weight_rate)
        if not self.training:
            return code @ self.decoder[:, :dim], None
        mean, raw = (code @ self.decoder).chunk(2, -1)
        deviation, slope = weight_deviation(raw.clamp(max=MOST_RAW))
        noise = less * torch.randn_like(mean)
        return mean + deviation * noise, slope * noise * (raw < MOST_RAW)

    def gradient(self, support: Tensor, weights: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of the support's loss by the weights, (B, N, D), and the logits (B, S, N).

        The loss is the sum over classes of the mean cross entropy of their examples. With c_i = 1 / K of the class of
        example i, dL / dw_n = sum_i c_i (p_in - y_in) x_i.
        """
        x = self.dropout(support)
        logits = x @ weights.mT
        wrong = share.sum(-1, keepdim=True) * logits.softmax(-1) - share  # (B, S, N); 0 for padding
        return wrong.mT @ x, logits

    def to_code(self, gradient: Tensor, slope: Tensor | None) -> Tensor:
        """Return the gradient by the code, (B, N, H), from the gradient by the weights."""
        if slope is None:
            return gradient @ self.decoder[:, : gradient.shape[-1]].mT
        return torch.cat([gradient, gradient * slope], -1) @ self.decoder.mT

    def row_correlation(self) -> Tensor:
        """Return the mean over H x H entries of (corr - I)^2, with corr the cosines between rows of the decoder."""
        rows = unit(self.decoder)
        correlation: Tensor = rows @ rows.mT
        return (correlation - torch.eye(len(rows), device=rows.device)).square().mean()

    def param_groups(self) -> dict[str, Group]:
        """Return all parameters except the temperature as one group."""
        return {"head": Group([self.embedding, *self.relation, self.decoder, self.code_rate, self.weight_rate])}

    def monitor(self) -> dict[str, float | list[float]]:
        """Return the mean norm of the codes, and the support's loss at each inner step."""
        if self._watched is None:
            return {}
        codes, logits, share = self._watched
        losses = [-float((share * found.log_softmax(-1)).sum()) / share.shape[0] for found in logits]
        return {"code_length": float(codes.norm(dim=-1).mean()), "support_loss": losses}

    def _scores(self, task: Task, weights: Tensor) -> Tensor:
        scores: Tensor = self.dropout(task.query) @ weights.mT
        return scores


def _divergence(mean: Tensor, deviation: Tensor, noise: Tensor) -> Tensor:
    """Return the mean of log N(z; mean, deviation) - log N(z; 0, 1) at z = mean + deviation noise."""
    sample = mean + deviation * noise
    return ((sample.square() - noise.square()) / 2 - deviation.log()).mean()


def _glorot(inputs: int, outputs: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
