"""glibc settings that keep freed memory in the process: training allocates the same sizes in every step."""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # parameters of mallopt, from glibc's malloc.h


def keep_large_blocks() -> bool:
    """Let glibc keep freed blocks of up to 32 MiB for the next allocation; return whether it accepted.

    The activations of a convolution take megabytes in every step. By default glibc maps and unmaps them each time,
    which slows down Conv4. The setting is for the whole process: the command line and the benchmarks call this, the
    library does not.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    return bool(
        mallopt(_MMAP_THRESHOLD, 32 << 20) and mallopt(_TRIM_THRESHOLD, 1 << 30) and mallopt(_TOP_PAD, 64 << 20)
    )
