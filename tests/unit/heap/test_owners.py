"""Who owns a block, where several come to it."""

from __future__ import annotations

from gpuwidget.heap.owners import Owners
from gpuwidget.pytorch.allocator import DeviceBlocks


def device(index: int, *blocks: tuple[int, int]) -> DeviceBlocks:
    """A device with blocks, each an address and its size."""
    addresses, sizes = tuple(one for one, _ in blocks), tuple(size for _, size in blocks)
    return DeviceBlocks(index, addresses, sizes, sizes, sum(sizes), 0, 0, 0)


def test_the_first_that_comes_owns_it() -> None:
    """A block belongs to one root, wherever in it the others point; who came to it later is known too."""
    owners = Owners({0: device(0, (1000, 512), (2000, 512)), 1: device(1, (9000, 512))})
    assert owners.without() == {0, 1}
    assert owners.take(7, 2, 2100) == 0
    assert owners.take(8, 1, 2000) == 0
    assert owners.take(9, 1, 9511) == 1
    assert owners.by_device == {0: [None, 2], 1: [1]}
    assert owners.without() == {0}
    assert owners.in_block == [(7, 0, 1), (8, 0, 1), (9, 1, 0)]
    firsts = [(number, blocks.index, place) for number, blocks, place in owners.first_comers()]
    assert firsts == [(7, 0, 1), (9, 1, 0)]


def test_other_memory_is_nobodys() -> None:
    """What lies before, between or behind the blocks, or on the CPU, has no device and owns nothing."""
    owners = Owners({0: device(0, (1000, 512), (2000, 512)), 1: device(1)})
    assert [owners.take(1, 0, address) for address in (0, 999, 1512, 2512)] == [None] * 4
    assert (owners.by_device, owners.in_block) == ({0: [None, None], 1: []}, [])
