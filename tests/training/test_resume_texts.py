"""A killed run ends with the same bytes where the method reads token states, and where it reads pairs of sentences."""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.tiny_models import WORDS, tiny_bert

from .test_resume import finished, start

RECIPE = """
name = "small"
data = {{ spec = "fewrel:{folder}/relations.json,holdout=3" }}
{parts}
optim.encoder = {{ name = "adam", lr = 0.003 }}
optim.head = {{ name = "adam", lr = 0.01, scheduled = true }}
[training]
steps = 12
validate_every = 4
checkpoint_every = 3
log_every = 2
schedule = "cosine"
clip_norm = 1.0
[validation]
way = 2
shot = 2
query = 2
episodes = 4
"""
TOKENS = """
encoder = {{ name = "relation-cnn:{folder}/vectors.txt", filters = 6, output = "maps", input_dropout = 0.2 }}
method = {{ name = "mlman", width = 8, hidden = 5, dropout = 0.2 }}
episodes = {{ way = 2, shot = [1, 3], query = 2, batch = 2 }}
"""
ITEMS = """
encoder = {{ name = "relation-transformer:{folder}/bert", frozen = false, representation = "pooled", max_length = 32 }}
method = {{ name = "bert-pair" }}
episodes = {{ way = 3, shot = 2, query = 2, batch = 1 }}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Word vectors, a tiny BERT, and eight relations whose sentences have 4 to 9 words."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(len(WORDS), 4)).round(3).tolist()
    lines = (" ".join(map(str, [word, *row])) for word, row in zip(WORDS, rows, strict=True))
    (tmp_path / "vectors.txt").write_text("\n".join(lines) + "\n")

    def instance() -> dict[str, Any]:
        tokens = random.choice(WORDS, random.integers(4, 10)).tolist()
        return {"tokens": tokens, "h": ["", "", [[0]]], "t": ["", "", [[2, 3]]]}

    relations = {f"P{n}": [instance() for _ in range(6)] for n in range(8)}
    (tmp_path / "relations.json").write_text(json.dumps(relations))
    tiny_bert(tmp_path / "bert")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("parts", [TOKENS, ITEMS], ids=["tokens", "items"])
def test_a_killed_run_ends_with_the_same_bytes(parts: str, folder: Path) -> None:
    """Killed between two checkpoints; with items, 36 pairs a step make two blocks."""
    recipe = folder / "small.toml"
    recipe.write_text(RECIPE.format(folder=folder, parts=parts.format(folder=folder)))
    assert finished(start(recipe, folder / "whole"), timeout=600) == list(range(1, 13))
    process = start(recipe, folder / "killed", pause=0.05)
    assert process.stdout is not None
    for _ in range(5):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    finished(start(recipe, folder / "killed"), timeout=600)
    for name in ("model.safetensors", "metrics.jsonl", "checkpoint/last.safetensors", "config.json"):
        assert (folder / "killed" / name).read_bytes() == (folder / "whole" / name).read_bytes(), name
    losses = [json.loads(line)["cls"] for line in (folder / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert len(set(losses)) == len(losses)
