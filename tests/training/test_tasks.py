"""Sources of training tasks: those of a recipe, and one of your own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperproto.episodes import Episode
from hyperproto.training import Report, load_recipe, train
from hyperproto.training.tasks import SampledTasks, training_pool

from .conftest import recipe_file


class FewTasks(SampledTasks):
    """The tasks of the first three steps again and again, with a column of the log."""

    drawn: list[int]
    resumed_at = 0

    def begin(self, rows: Any, progress: Any = None) -> None:
        super().begin(rows, progress)
        self.drawn, self.resumed_at = [], rows[-1]["step"] if rows else 0

    def draw(self, step: int) -> list[Episode]:
        self.drawn.append(step)
        return super().draw(step % 3)

    def log(self) -> dict[str, float]:
        return {"place": float(self.drawn[-1] % 3)}


def test_a_source_of_your_own_draws_logs_and_resumes(vectors_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(str(recipe_file(vectors_file)), ["training.steps=12", "training.log_every=1"])
    made: list[FewTasks] = []

    def source(*given: Any) -> FewTasks:
        made.append(FewTasks(*given))
        return made[-1]

    def stop(report: Report) -> None:
        if report.step == 9:
            raise KeyboardInterrupt

    whole = train(recipe, tmp_path / "whole", source=source)
    assert made[0].drawn == list(range(12))
    assert [row["place"] for row in whole.read_metrics()] == [0.0, 1.0, 2.0] * 4
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "killed", stop, source=source)
    killed = train(recipe, tmp_path / "killed", source=source)
    assert (made[2].resumed_at, made[2].drawn) == (7, list(range(7, 12)))  # checkpoints are after steps 7 and 12
    for file in ("model.safetensors", "metrics.jsonl"):
        assert (killed.folder / file).read_bytes() == (whole.folder / file).read_bytes()
    assert train(recipe, tmp_path / "plain").model.read_bytes() != whole.model.read_bytes()


@pytest.mark.parametrize(
    ("section", "number", "items"), [("episodes={way=3,shot=1,query=2,batch=4}", 4, 9), ("batches={size=6}", 1, 6)]
)
def test_a_recipe_says_what_a_step_draws(section: str, number: int, items: int, vectors_file: Path) -> None:
    method = "protonet" if number == 4 else "classifier"
    path = recipe_file(vectors_file, method)
    if number == 1:
        lines = path.read_text().replace(", learn_temperature = true", "").splitlines()
        path.write_text("\n".join(line for line in lines if not line.startswith("episodes")))
    recipe = load_recipe(str(path), [section])
    learner: Any = None
    source = SampledTasks(recipe, training_pool(recipe), learner)
    first, second = source.draw(0), source.draw(1)
    assert len(first) == len(second) == number
    for episode in first:
        assert len(episode.support) + len(episode.query) == items
    assert not np.array_equal(first[0].query, second[0].query)
