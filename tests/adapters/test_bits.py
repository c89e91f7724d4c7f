"""Masks as packed bits."""

import pytest
import torch

from eftgan.errors import UserError
from eftgan.tensors import pack_bits, unpack_bits


def test_the_first_entry_is_the_lowest_bit():
    mask = torch.tensor([True, False, False, True, False, False, False, True, True])
    assert pack_bits(mask).tolist() == [1 + 8 + 128, 1]


@pytest.mark.parametrize("shape", [(), (1,), (8,), (3, 5), (4, 3, 3, 3), (0,)])
def test_bits_come_back(shape):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) > 0.5
    packed = pack_bits(mask)
    assert packed.numel() == -(-mask.numel() // 8)
    assert torch.equal(unpack_bits(packed, shape), mask)


def test_the_order_is_the_logical_one_whatever_the_memory_layout():
    mask = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0)) > 0.5
    assert torch.equal(pack_bits(mask.contiguous(memory_format=torch.channels_last)), pack_bits(mask))


def test_bytes_of_another_number_of_entries_are_refused():
    with pytest.raises(UserError, match="not the packed bits of 17 entries"):
        unpack_bits(torch.zeros(2, dtype=torch.uint8), (17,))
