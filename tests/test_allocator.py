import sys

from hyperproto import allocator


def test_glibc_is_told_and_others_are_left_alone(monkeypatch) -> None:
    assert allocator.keep_large_blocks() == (sys.platform.startswith("linux"))
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    assert not allocator.keep_large_blocks()
    monkeypatch.setattr(allocator.sys, "platform", "linux")
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())
    assert not allocator.keep_large_blocks()
