"""The tiny language model of the pipelines' tests."""

from tests.pipelines.conftest import bert, nothing_loaded

__all__ = ["bert", "nothing_loaded"]
