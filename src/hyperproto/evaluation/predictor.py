"""What answers queries: features, a method on them, and the decision that follows its scores."""

from typing import Self

from torch import Tensor, nn

from hyperproto.decisions import Decision, make_decision
from hyperproto.encoders import Encoder, Features, FeatureTransform
from hyperproto.methods import Method, Task


class Predictor(nn.Module):
    """The three parts that every number comes through; training's learner is one."""

    def __init__(self, features: Features, method: Method, decision: Decision) -> None:
        super().__init__()
        self.features = features
        self.method = method
        self.decision = decision

    @classmethod
    def of(
        cls,
        method: Method,
        encoder: Encoder,
        transform: str = "none",
        center: Tensor | None = None,
        decision: Decision | None = None,
    ) -> Self:
        """Put parts together, where the encoder is; `center` is the mean of the training data for center-unit."""
        after = FeatureTransform(transform, encoder.feature_shape).to(encoder.device)
        if center is not None:
            after.set_center(center)
        decision = make_decision(method, {}) if decision is None else decision
        return cls(Features(encoder, after), method.to(encoder.device), decision.to(encoder.device))

    def decide(self, scores: Tensor, task: Task) -> Tensor:
        """Labels (B, Q) that follow from the scores (B, Q, N)."""
        return self.decision.decide(self.method.logits(scores), task)

    def doubt(self, scores: Tensor, task: Task) -> Tensor:
        """Score (B, Q) for "none of these": the method's own, or the decision's where it has none."""
        own = self.method.doubt(task, scores)
        return self.decision.doubt(self.method.logits(scores), task) if own is None else own
