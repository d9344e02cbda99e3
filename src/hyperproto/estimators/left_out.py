"""Every example judged as if it had not been there, in closed form.

Taking one example away moves only the mean of its own class, and by a known step: with residual r = x - z of one of K
examples the mean becomes z - r / (K - 1), the distance of x to it K / (K - 1) ||r||, and the squares lose
K / (K - 1) ||r||^2.

An example of weight w counts as w examples, so what is taken away is one of them (all of it, if w < 1).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hyperproto.regions.arrays import Doubles
from hyperproto.regions.statistics import FlatStatistics

LEAST = 1e-9  # a class of fewer examples than this is empty


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Each example (S,) against the rest of its class."""

    stats: FlatStatistics

    @cached_property
    def taken(self) -> Doubles:
        """How many examples are taken away with each: one."""
        return np.minimum(self.stats.weights, 1.0)

    @cached_property
    def rest(self) -> Doubles:
        """How many examples its class has left."""
        return self.stats.count[self.stats.labels] - self.taken

    @cached_property
    def several(self) -> NDArray[np.bool_]:
        """Whether there are any left; nothing can be said of an example that is alone in its class."""
        return self.rest > LEAST

    @cached_property
    def step(self) -> Doubles:
        """How far the mean moves, in units of -r."""
        return np.divide(self.taken, self.rest, where=self.several, out=np.zeros_like(self.rest))

    @cached_property
    def distance2(self) -> Doubles:
        """||x - mean of the others||^2."""
        return (1 + self.step) ** 2 * self.stats.lengths

    @cached_property
    def squares(self) -> Doubles:
        """Sum of squares of the others about their mean; exactly 0 of a single one."""
        loss = self.taken * (1 + self.step) * self.stats.lengths
        left = np.maximum(self.stats.squares[self.stats.labels] - loss, 0.0)
        return np.where(self.rest > 1 + LEAST, left, 0.0)
