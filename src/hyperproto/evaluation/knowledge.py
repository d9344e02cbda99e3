"""What a candidate is told besides the support of an episode: names of classes, items without a label."""

from dataclasses import dataclass
from typing import Any, Literal, Self

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.methods import Method

WORDS = ("nothing", "names", "example", "unlabelled", "queries")


@dataclass(frozen=True)
class Known:
    """What is told, and how it is used.

    `names` are a prior of the method's own ("prior"), or one more example of each class ("example"), which any method
    can use. `rows` without a label are other items of the pool ("unlabelled") or the episode's own queries ("queries":
    the answers are then transductive).
    """

    names: Literal["prior", "example"] | None = None
    rows: Literal["unlabelled", "queries"] | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read words joined by +, such as `names+unlabelled`."""
        words = text.split("+")
        for word in words:
            if word not in WORDS:
                raise ConfigError(f"--know {text}: {unknown_name('word', word, WORDS)}")
        if len(set(words)) < len(words) or {"names", "example"} <= {*words} or {"unlabelled", "queries"} <= {*words}:
            raise ConfigError(
                f"--know {text}: names are a prior (names) or an example, and rows unlabelled items or the queries, "
                "each named once; repeat --know to compare several"
            )
        if "nothing" in words and len(words) > 1:
            raise ConfigError(f"--know {text}: nothing stands alone; repeat --know to compare several")
        names: Literal["prior", "example"] | None = "prior" if "names" in words else None
        if "example" in words:
            names = "example"
        rows: Literal["unlabelled", "queries"] | None = "unlabelled" if "unlabelled" in words else None
        return cls(names, "queries" if "queries" in words else rows)

    def __str__(self) -> str:
        """As it is parsed."""
        words = [{"prior": "names", "example": "example"}[self.names]] if self.names else []
        return "+".join([*words, *([self.rows] if self.rows else [])]) or "nothing"

    def settings(self, drawn: dict[str, Any]) -> dict[str, Any]:
        """What a result says: nothing where nothing is told; `drawn` says how many items come without a label."""
        said: dict[str, Any] = {} if self == Known() else {"knows": str(self)}
        return said | (drawn if self.rows == "unlabelled" else {})

    def serves(self, method: Method) -> bool:
        """Whether a method has a use for all that is told."""
        needed = ({"names"} if self.names == "prior" else set()) | ({"unlabelled"} if self.rows else set())
        return needed <= method.knows and (self.names != "example" or method.reads == "vectors")
