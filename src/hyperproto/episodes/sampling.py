"""The sampler that fits a pool: K~2K for sentences with a label for each word, N-way K-shot for everything else."""

from collections.abc import Sequence

from hyperproto.data import Pool
from hyperproto.episodes.episode import Sampler
from hyperproto.episodes.greedy import GreedySampler, Rule
from hyperproto.episodes.sampler import EpisodeSampler
from hyperproto.errors import EpisodeError

QUERIES = 15  # a class, where nobody says how many


def make_sampler(
    pool: Pool,
    *,
    way: int,
    shot: int | Sequence[int],
    query: int | None = None,
    seed: int = 0,
    nota_share: float = 0.0,
    na_rate: int = 0,
    rule: Rule | None = None,
    least_spans: int | None = None,
) -> Sampler:
    """Make the sampler of a pool; refuse what it has no meaning for.

    Without `query`, there are 15 queries a class; of sentences as many entities as in the support, as in Few-NERD.
    """
    if pool.offsets is None:
        if rule is not None or least_spans is not None:
            raise EpisodeError(f"{pool}: rule and least_spans are of K~2K episodes, for sentences with tagged words")
        query = QUERIES if query is None else query
        nota = {"nota_share": nota_share, "na_rate": na_rate}
        return EpisodeSampler(pool, way=way, shot=shot, query=query, seed=seed, **nota)  # type: ignore[arg-type] # a float and an int
    if nota_share or na_rate:
        raise EpisodeError(f"{pool}: what is of none of the types is O here, in every episode; leave NOTA out")
    if not isinstance(shot, int):
        raise EpisodeError(f"{pool}: K~2K episodes have one K for all types, not shots {list(shot)}; give one number")
    return GreedySampler(
        pool,
        way=way,
        shot=shot,
        query=max(1, shot) if query is None else query,
        seed=seed,
        rule=rule or "toolkit",
        least_spans=least_spans or 0,
    )
