"""Keep freed blocks in the process (`mallopt`): training allocates the same sizes in every step."""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # names of mallopt's parameters, from glibc's malloc.h


def keep_large_blocks() -> bool:
    """Tell glibc to keep freed blocks up to 32 MiB for the next allocation; return whether it was told.

    The activations of a convolution are megabytes that are allocated and freed in every step. By default glibc maps and
    unmaps them each time, which a training step of Conv4 feels. It concerns the whole process, so only
    programs call this (the command line, the benchmarks), never the library.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    return bool(
        mallopt(_MMAP_THRESHOLD, 32 << 20) and mallopt(_TRIM_THRESHOLD, 1 << 30) and mallopt(_TOP_PAD, 64 << 20)
    )
