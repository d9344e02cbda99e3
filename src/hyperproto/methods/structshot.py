"""StructShot: NNShot, and the best path of labels through each sentence."""

from typing import Any

from hyperproto.methods.nnshot import NNShot


class StructShot(NNShot):
    """Yang & Katiyar, EMNLP 2020: NNShot's probabilities and abstract transitions, decoded by Viterbi.

    Every method can do that (`path = true`): this is NNShot with it. `tau` is the power that transitions are raised to,
    beside the words' probabilities at `temperature`: the Few-NERD toolkit takes 0.32 for 1~2 shots, 0.318 for 5-way and
    0.434 for 10-way 5~10 shots. Tune both on validation data.
    """

    start_tau = 0.32

    def __init__(self, *, path: bool = True, **options: Any) -> None:
        super().__init__(path=path, **options)
