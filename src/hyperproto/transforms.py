"""The feature transforms, by name: what may follow an encoder. It matters more than most methods do."""

from typing import Literal, get_args

Transform = Literal["none", "unit", "center-unit"]
TRANSFORMS: tuple[str, ...] = get_args(Transform)
