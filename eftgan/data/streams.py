"""Random streams named by what they serve, so that a task sees the same data and noise however it is run."""

import hashlib

import torch


def stream_seed(*parts: object) -> int:
    """A 63-bit seed from the parts, e.g. `stream_seed(seed, "birds", "noise")`; the same on every machine."""
    text = "\x1f".join(repr(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:8], "big") >> 1


def stream(*parts: object) -> torch.Generator:
    """A fresh CPU generator seeded by `stream_seed(*parts)`."""
    return torch.Generator().manual_seed(stream_seed(*parts))
