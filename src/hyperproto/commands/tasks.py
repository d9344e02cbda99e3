"""Which episodes a method is measured on: drawn from data, or read from a file of episodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperproto.data import Pool, Progress, open_pool
from hyperproto.episodes import Episode, load_fewnerd_episodes, make_sampler
from hyperproto.episodes.fewnerd_files import shots_in_name
from hyperproto.episodes.greedy import RULES, Rule
from hyperproto.errors import ConfigError, unknown_name

SHOTS = "5"  # where nobody says how many
EPISODES = 1000


@dataclass(frozen=True, eq=False)
class Drawn:
    """A list of episodes, and what results say of them."""

    settings: dict[str, Any]
    episodes: list[Episode]


@dataclass(frozen=True)
class Tasks:
    """Which episodes it is measured on."""

    data: str
    split: str
    shots: Sequence[str]  # as the user writes them, a list of episodes for each; none: 5
    way: int
    query: int | None  # None: what is usual with such data
    episodes: int | None  # None: 1,000, or all of a file
    seed: int
    nota_share: float = 0.0
    na_rate: int = 0
    threshold_data: str | None = None
    threshold_split: str | None = None
    rule: Rule | None = None  # of K~2K episodes
    least_spans: int | None = None
    file: Path | None = None  # Few-NERD's episodes, drawn by others

    @property
    def nota(self) -> dict[str, Any]:
        """How many queries are of none of the classes: empty if none is."""
        asked = {"nota_share": self.nota_share, "na_rate": self.na_rate}
        return {name: value for name, value in asked.items() if value}

    @property
    def kinds(self) -> dict[str, Any]:
        """How K~2K episodes are drawn, as far as that was said."""
        asked = {"rule": self.rule, "least_spans": self.least_spans}
        return {name: value for name, value in asked.items() if value is not None}

    def open(self, progress: Progress) -> tuple[Pool, list[Drawn]]:
        """Open the data and draw the episodes for each kind of shots, or read those of a file."""
        if self.file is None:
            pool = open_pool(self.data, self.split, progress)
            return pool, self.draw(pool)
        if self.nota or self.kinds:
            raise ConfigError(f"{self.file}: its episodes are as they are; leave out how they should be drawn")
        shot = shots_in_name(self.file)
        if shot is None and len(self.shots) == 1 and self.shots[0].isdecimal():
            shot = int(self.shots[0])
        pool, episodes = load_fewnerd_episodes(self.file, shot)
        episodes = episodes[: self.episodes]
        shape = {"way": episodes[0].way - 1, "shot": shot, "query": None, "episodes": len(episodes), "seed": None}
        return pool, [Drawn({**shape, "episode_file": self.file.name}, episodes)]

    def draw(self, pool: Pool) -> list[Drawn]:
        """Draw the episodes for each kind of shots; what is asked for twice comes once."""
        count = EPISODES if self.episodes is None else self.episodes
        shape: dict[str, Any] = {"way": self.way, "seed": self.seed, **self.nota, **self.kinds}
        drawn = []
        for text in dict.fromkeys(self.shots or [SHOTS]):
            sampler = make_sampler(pool, shot=parse_shots(text), query=self.query, **shape)
            settings = {**shape, "shot": parse_shots(text), "query": sampler.query, "episodes": count}
            drawn.append(Drawn(settings, sampler.draw(count)))
        return drawn

    def threshold_pool(self, pool: Pool, progress: Progress) -> Pool | None:
        """Open the data that thresholds are chosen on: not those that are reported. None where nothing is rejected."""
        if not self.nota:
            if self.threshold_data or self.threshold_split:
                raise ConfigError(
                    "--threshold-data and --threshold-split choose when a query is of none of the classes, but every "
                    "query is of one; add --nota-share or --na-rate"
                )
            return None
        other = open_pool(self.threshold_data or self.data, self.threshold_split or "val", progress)
        if other.digest == pool.digest:
            raise ConfigError(
                f"thresholds would be chosen on {other}, the very data that are reported; name other data with "
                "--threshold-data, or another split with --threshold-split"
            )
        return other


def checked_rule(name: str | None) -> Rule | None:
    """Read the name of a rule of K~2K sampling."""
    for rule in RULES:
        if name == rule:
            return rule
    if name is not None:
        raise ConfigError(f"--rule: {unknown_name('rule', name, RULES)}")
    return None


def parse_shots(text: str) -> int | list[int]:
    """Read one number, or one for each class."""
    try:
        shots = [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--shot {text!r}: write one number (5), or one for each class (1,1,2,5,20)") from None
    if min(shots) < 1:
        raise ConfigError(f"--shot {text}: unseen classes are fitted to their support; give each at least 1 example")
    return shots[0] if len(shots) == 1 else shots
