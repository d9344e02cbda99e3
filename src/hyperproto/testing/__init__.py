"""Contract suites for methods, encoders and regions, also those of third parties.

    from hyperproto.testing import check_method
    check_method(MyMethod, hidden=32)

Each suite raises an AssertionError that says what does not hold. `check_region` runs without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperproto.testing.encoders import check_encoder
    from hyperproto.testing.methods import (
        NAME_SIZE,
        Bench,
        LinearEncoder,
        PictureEncoder,
        RandomNames,
        check_method,
        method_checks,
    )
    from hyperproto.testing.regions import check_region

__all__ = [
    "NAME_SIZE",
    "Bench",
    "LinearEncoder",
    "PictureEncoder",
    "RandomNames",
    "check_encoder",
    "check_method",
    "check_region",
    "method_checks",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = {"check_encoder": "encoders", "check_region": "regions"}.get(name, "methods")
    return getattr(import_module(f"{__name__}.{module}"), name)
