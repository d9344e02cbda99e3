"""The tiny language model of the estimators' tests."""

from tests.helpers.items import bert, nothing_loaded

__all__ = ["bert", "nothing_loaded"]
