from pathlib import Path

import pytest

RECIPE = """
transform = "{transform}"
data = {{ spec = "vectors:{data}" }}
encoder = {{ name = "tiny" }}
method = {{ name = "{method}", learn_temperature = true }}
episodes = {{ way = 4, shot = 3, query = 4, batch = 2 }}
optim.encoder = {{ name = "adam", lr = 0.01 }}
{radius}
[training]
steps = 30
validate_every = 10
checkpoint_every = 7
log_every = 5
schedule = "cosine"
clip_norm = 1.0
[validation]
way = 4
shot = 2
query = 5
episodes = 20
"""

TINY = """
import torch
from torch import nn
from hyperproto.encoders import ENCODERS
from hyperproto.encoders.base import Units
from hyperproto.encoders.identity import Identity


class Tiny(Identity):
    '''A linear map with dropout, so that randomness within a step matters.'''

    def __init__(self, *, shape: list[int], size: int = 5) -> None:
        super().__init__(shape=shape)
        self.linear = nn.Linear(shape[0], size)
        self.dropout = nn.Dropout(0.2)
        self.feature_shape = (size,)

    def forward(self, batch):
        return Units.one_each(self.linear(self.dropout(batch)))

    def encode_all(self, prepared, progress=None):
        with torch.inference_mode():
            was = self.training
            self.eval()
            units = self(torch.from_numpy(prepared))
            self.train(was)
            return units


if "tiny" not in ENCODERS.names():
    ENCODERS.add("tiny", Tiny)
"""


@pytest.fixture(autouse=True)
def tiny() -> None:
    """Register a small encoder with weights and dropout."""
    exec(TINY, {"__name__": "tiny"})


def recipe_file(vectors: Path, method: str = "hyperproto", transform: str = "none") -> Path:
    radius = 'optim.radius = { name = "adam", lr = 1.0 }' if method.startswith("hyperproto") else ""
    path = vectors.with_name(f"{method}.toml")
    path.write_text(RECIPE.format(data=vectors, method=method, transform=transform, radius=radius))
    return path
