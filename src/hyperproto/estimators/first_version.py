"""Pickles of version 0.1: the classes that they name, and their conversion to a `State`.

The modules `memory`, `side` and `appendable` of that version are names of this one.
"""

import sys
from typing import Any

from hyperproto.estimators.snapshot import UnlabelledSummary
from hyperproto.estimators.state import AppendableArray, State

__all__ = ["AppendableArray", "Learned", "Memory", "SideInformation", "Support", "converted"]


class Memory:
    """Former name of `State`."""

    def __new__(cls) -> Any:
        """Return a State; pickle then calls its `__setstate__`."""
        return State.__new__(State)


class Support:
    """Stored examples, formerly an object of their own."""


class SideInformation:
    """Class names and unlabelled rows, formerly an object of their own."""


class Learned:
    """Former name of `UnlabelledSummary`."""


def converted(old: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a `State` from those of a pickled `Memory`."""
    mean, support, side = old["_mean"], old["support"], old["side"]
    state = State(mean.view.shape[1], side.rows.view.dtype, old["unit"], support is not None)
    fields = {name: old[name] for name in ("labels", "slot_of", "items")}
    fields |= {"count": old["_count"], "mean": mean, "squares": old["_squares"]}
    if support is not None:
        fields |= {name: vars(support)[f"_{name}"] for name in ("rows", "slots", "weights", "numbers")}
        fields["given"] = support.given
    fields |= {"names": side.names, "declared": side.declared, "unlabelled": side.rows}
    if side.learned is not None:
        fields["summary"] = UnlabelledSummary(**vars(side.learned))
    return {**vars(state), **fields}


for _name in ("memory", "side", "appendable"):
    sys.modules[f"{__package__}.{_name}"] = sys.modules[__name__]
