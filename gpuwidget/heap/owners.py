"""Who owns which block: each belongs to one root, the first from which it was reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpuwidget.pytorch.allocator import DeviceBlocks


class Owners:
    """The blocks of all devices, and who came to them."""

    def __init__(self, blocks: Mapping[int, DeviceBlocks]) -> None:
        self._blocks = blocks
        self._spans = [(b.addresses[0], b.addresses[-1] + b.sizes[-1], b) for b in blocks.values() if b.sizes]
        self.by_device: dict[int, list[int | None]] = {
            index: [None] * len(found.addresses) for index, found in blocks.items()
        }
        """By device index, for each of its blocks: the number of the root, None where none came so far."""
        self.in_block: list[tuple[int, int, int]] = []
        """All that came: an object's number, and the device and the number of the block that it is in."""

    def take(self, number: int, root: int, address: int) -> int | None:
        """Give the block at ``address`` to its first comer. Returns its device, None without one."""
        for since, until, blocks in self._spans:
            place = blocks.find(address) if since <= address < until else None
            if place is not None:
                owners = self.by_device[blocks.index]
                if owners[place] is None:
                    owners[place] = root
                self.in_block.append((number, blocks.index, place))
                return blocks.index
        return None

    def without(self) -> set[int]:
        """The devices that have blocks to which nobody came so far."""
        return {index for index, owners in self.by_device.items() if None in owners}

    def first_comers(self) -> Iterator[tuple[int, DeviceBlocks, int]]:
        """For each block that was reached: who came first, and its device's blocks with its number there."""
        seen: set[tuple[int, int]] = set()
        for number, index, place in self.in_block:
            if (index, place) not in seen:
                seen.add((index, place))
                yield number, self._blocks[index], place
