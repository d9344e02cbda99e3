import ctypes
import sys

import pytest

from hyperproto import allocator


def test_glibc_is_told_and_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert allocator.keep_large_blocks() == (sys.platform.startswith("linux"))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not allocator.keep_large_blocks()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not allocator.keep_large_blocks()
