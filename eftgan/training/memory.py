"""Memory that a training step frees stays with the process, so that the next step finds it in place."""

import ctypes
import os
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
KEPT, LARGEST = 2**30, 2**25  # bytes: kept when freed; of a buffer, above which glibc maps it anew in any case


def keep_freed_memory() -> bool:
    """Ask glibc not to give freed buffers back at once; whether it was asked.

    It does so for buffers as large as feature maps, and the kernel then clears thousands of pages in every step: up to
    a tenth of a step on a CPU. Somebody's own settings (MALLOC_..., GLIBC_TUNABLES) stay, and so do other allocators.
    """
    chosen = any(key.startswith("MALLOC_") or key == "GLIBC_TUNABLES" for key in os.environ)
    if chosen or "LD_PRELOAD" in os.environ or not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return bool(mallopt and mallopt(M_MMAP_THRESHOLD, LARGEST) and mallopt(M_TRIM_THRESHOLD, KEPT))
