"""Memory against shots: what NNShot and HyperProto keep of a support set, and what scoring an episode takes.

The paper says that NNShot's memory grows quadratically with the shots and that HyperProto's does not; it shows neither.
Episodes are drawn from real data and their words counted; vectors are random, since memory does not depend on them.
"""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import finalize

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hyperproto.data import open_pool
from hyperproto.episodes import Episode
from hyperproto.methods import Method, Task, make_method
from hyperproto.paper.figure import Drawing, FigureDefinition, NotGivenError, Numbers, Points, Request, Table, style
from hyperproto.problems import make_sampler
from hyperproto.progress import Show
from hyperproto.reports.pictures import VERMILLION, plain

SHOTS = (1, 2, 5, 10, 15, 20)
SIZE = 768  # of BERT's vectors
EPISODES = 5
METHODS = {"NNShot": ("nnshot", "point"), "HyperProto": ("hyperproto", "paper")}
PARTS = ("kept", "all_distances", "all_differences", "measured")
FLOAT = 4  # bytes


def memory_numbers(
    data: str, split: str, shots: Sequence[int], seed: int, show: Show, *, size: int = SIZE, way: int = 5
) -> Numbers:
    """Return the mean bytes of an episode by method and shots.

    `kept`: every vector of the support (NNShot), or a centre and a radius a class (HyperProto). `all_distances`: of
    each query to each support example, or to each centre, at once; `all_differences`: the same coordinate by
    coordinate, which a plain broadcast subtraction holds. `measured`: the most that tensors of our scoring held beside
    the episode itself; it scores NNShot in blocks, so that this is bounded.
    """
    pool = open_pool(data, split)
    rows = []
    for done, shot in enumerate(shots):
        show(done, len(shots), "kinds of shots measured")
        sampler = make_sampler(pool, way=way, shot=shot, query=None, seed=seed)
        for name, (method, fit) in METHODS.items():
            scorer = make_method(method, feature_shape=(size,), fit=fit).eval()
            parts = np.mean([_bytes(scorer, name, episode, size) for episode in sampler.draw(EPISODES)], axis=0)
            words = ("support", "queries", *PARTS)
            rows.append({"method": name, "shots": shot, **dict(zip(words, parts.round(1).tolist(), strict=True))})
    powers = {
        name: {part: growth([row for row in rows if row["method"] == name], part) for part in PARTS} for name in METHODS
    }
    facts = {"data": data, "split": split, "way": way, "size": size, "seed": seed, "episodes": EPISODES}
    return {**facts, "rows": rows, "power_of_shots": powers}


def growth(rows: Sequence[dict[str, Any]], part: str) -> float | None:
    """Return the slope of log bytes over log shots, the power of memory growth; None for a single number of shots."""
    if len(rows) < 2:
        return None
    x, y = np.log([row["shots"] for row in rows]), np.log([max(row[part], 1.0) for row in rows])
    return round(float(np.polyfit(x, y, 1)[0]), 3)


def _bytes(method: Method, name: str, episode: Episode, size: int) -> tuple[float, ...]:
    """Return support and query units of an episode; bytes kept, of all distances, of all differences, and measured."""
    assert episode.query_y is not None
    support, queries, way = len(episode.support_y), len(episode.query_y), episode.way
    random = torch.Generator().manual_seed(0)
    task = Task(
        support=torch.randn(1, support, size, generator=random),
        support_y=torch.from_numpy(episode.support_y)[None],
        query=torch.randn(1, queries, size, generator=random),
        query_y=torch.from_numpy(episode.query_y)[None],
        classes=torch.from_numpy(episode.classes)[None],
        query_offsets=torch.tensor([[0, queries]]),
    )
    kept = support * size if name == "NNShot" else way * (size + 1)
    table = queries * (support if name == "NNShot" else way)
    return support, queries, FLOAT * kept, FLOAT * table, FLOAT * table * size, peak_bytes(lambda: method(task))


class _Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch has no types for it
    """Count of the bytes of storages that operations make, until they are freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = 0
        self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = {each.untyped_storage().data_ptr() for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, Tensor) and each.untyped_storage().data_ptr() not in before | self._known:
                self._add(each.untyped_storage())
        return result

    def _add(self, storage: Any) -> None:
        place, size = storage.data_ptr(), storage.nbytes()
        self._known.add(place)
        self.held += size
        self.peak = max(self.peak, self.held)
        finalize(storage, self._free, place, size)

    def _free(self, place: int, size: int) -> None:
        self._known.discard(place)
        self.held -= size


@torch.no_grad()
def peak_bytes(call: Callable[[], Any]) -> int:
    """Return the peak bytes of tensors made by a call; temporary memory inside an operation is not counted."""
    seen = _Allocations()
    with seen:
        call()
    return seen.peak


MEMORY = {
    "kept": "kept for the classes",
    "all_distances": "all distances at once",
    "all_differences": "all differences at once",
    "measured": "measured: most held in our scoring",
}


def draw_memory(numbers: Numbers) -> Drawing:
    """Draw a panel for each type of memory, on logarithmic scales, with a line for each method."""
    figure = Figure(figsize=(12.4, 3.9), layout="constrained")
    drawing = Drawing(figure)
    panels = figure.subplots(1, len(MEMORY), sharey=True)
    for axis, (part, title) in zip(panels, MEMORY.items(), strict=True):
        for method, colour, marker in (("NNShot", "#666666", "s"), ("HyperProto", VERMILLION, "D")):
            rows = [row for row in numbers["rows"] if row["method"] == method]
            places = np.array([[row["shots"], row[part] / 2**20] for row in rows])
            line = axis.plot(*places.T, color=colour, marker=marker, markersize=5, label=method)
            words = [f"{method}, {title}\n{row['shots']} shots: {row[part] / 2**20:.4g} MiB" for row in rows]
            series = drawing.belongs(method, line)
            drawing.spots.append(Points(axis, places, [drawing.tip(text) for text in words], series))
        style(axis)
        axis.set_xscale("log")
        axis.set_yscale("log")
        shots = sorted({row["shots"] for row in numbers["rows"]})
        axis.set_xticks(shots, [str(k) for k in shots])
        axis.minorticks_off()
        powers = [numbers["power_of_shots"][method][part] for method in ("NNShot", "HyperProto")]
        said = "" if None in powers else f"\n∝ shots to the power {powers[0]:.2f} / {powers[1]:.2f}"
        axis.set_title(f"{title}{said}", fontsize=9)
        axis.set_xlabel("shots", fontsize=9)
    panels[0].set_ylabel("MiB an episode", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    data = plain(f"{numbers['data']} ({numbers['split']})")
    figure.suptitle(f"{data}, {numbers['way']}-way, vectors of {numbers['size']}", fontsize=10)
    return drawing


def memory_table(numbers: Numbers) -> Table:
    """Return head and rows, in MiB: a row for each method and number of shots."""
    rows = [
        [row["method"], str(row["shots"]), f"{row['support']:.0f}", *(f"{row[part] / 2**20:.4g}" for part in MEMORY)]
        for row in numbers["rows"]
    ]
    return ["method", "shots", "support vectors", *(f"{title}, MiB" for title in MEMORY.values())], rows


def _measure(request: Request, show: Show) -> Numbers:
    if not request.alone and request.data is None:
        raise NotGivenError("memory draws episodes of a data set: name it with --data, such as --data fewnerd")
    data = request.data or "fewnerd"
    return memory_numbers(data, request.split or "test", request.shots or SHOTS, request.seed, show)


MEMORY_FIGURE = FigureDefinition(
    "Memory against shots",
    "The paper says that the memory of NNShot grows quadratically with the shots, and that of HyperProto does not. "
    "Mean over episodes. Queries grow with the shots, as in Few-NERD.",
    _measure,
    draw_memory,
    memory_table,
    measured=True,
)
