"""Episodes: few-shot tasks drawn from a pool by a seed."""

from hyperproto.data import OUTSIDE, Pool
from hyperproto.episodes.batches import BatchSampler, PairSampler
from hyperproto.episodes.episode import Episode, Sampler, episodes_hash
from hyperproto.episodes.episode_files import load_episodes, load_fewnerd_episodes, save_episodes, save_fewnerd_episodes
from hyperproto.episodes.greedy import GreedySampler
from hyperproto.episodes.sampler import EpisodeSampler

__all__ = [
    "OUTSIDE",
    "BatchSampler",
    "Episode",
    "EpisodeSampler",
    "GreedySampler",
    "PairSampler",
    "Pool",
    "Sampler",
    "episodes_hash",
    "load_episodes",
    "load_fewnerd_episodes",
    "save_episodes",
    "save_fewnerd_episodes",
]
