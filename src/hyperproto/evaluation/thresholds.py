"""Where the threshold of "none of these" is chosen: episodes of other data than are reported."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hyperproto.data import Pool, Progress
from hyperproto.decisions import choose_threshold
from hyperproto.encoders import Encoder
from hyperproto.episodes import Episode, episodes_hash
from hyperproto.evaluation.predictor import Predictor
from hyperproto.evaluation.scoring import EncodedPool, encoded_for, predict_episodes
from hyperproto.problems import Verdicts


@dataclass(frozen=True, eq=False)
class Rejection:
    """Where thresholds are chosen: episodes with queries of none of the classes, of other data than are reported."""

    pool: Pool
    episodes: Sequence[Episode]
    encoded: dict[Encoder, EncodedPool] = field(default_factory=dict)  # each encoder reads the pool once

    def threshold(self, predictor: Predictor) -> float:
        """Choose the threshold of one predictor."""
        encoded = encoded_for(predictor.method, predictor.features.encoder, self.pool, self.encoded)
        verdicts = judge_episodes(predictor, encoded, self.episodes)
        return choose_threshold(verdicts.novelty, verdicts.correct, verdicts.outside)

    def settings(self) -> dict[str, Any]:
        """Say where the threshold comes from."""
        drawn = episodes_hash(self.pool, self.episodes)
        return {"threshold_data": self.pool.name, "threshold_split": self.pool.split, "threshold_hash": drawn}


def judge_episodes(
    predictor: Predictor, encoded: EncodedPool, episodes: Sequence[Episode], progress: Progress | None = None
) -> Verdicts:
    """Predict the class, and the doubt, of every query of the episodes."""
    return Verdicts.of(predict_episodes(predictor, encoded, episodes, progress, doubt=True))
