"""Examples that come in groups, such as the words of one sentence: they are alike, and say less than so many others."""

from array_api_compat import array_namespace, device

from hyperproto.regions.arrays import Array, at_least


def effective_count(member: Array, groups: Array, correlation: float) -> Array:
    """How many independent examples those of each class are worth: (..., N).

    `member` (..., S, N) is 1 where an example is of a class; `groups` (..., S) numbers the groups from 0. Where the
    examples of one class in one group correlate by r, the mean of m of them is as noisy as that of m / (1 + (m - 1) r)
    independent ones: the design effect of cluster samples (Kish, "Survey Sampling", 1965).
    """
    xp = array_namespace(member, groups)
    numbers = xp.arange(int(xp.max(groups)) + 1, dtype=groups.dtype, device=device(groups))
    inside = xp.astype(groups[..., None] == numbers, member.dtype)  # (..., S, G)
    size = inside.mT @ member  # (..., G, N) examples of each class in each group
    return xp.sum(size / (1 + at_least(size - 1, 0.0) * correlation), axis=-2)
