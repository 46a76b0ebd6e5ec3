"""Tests of the search from variables to memory blocks: what the search finds, which variable owns a block,
and where the search stops."""

from __future__ import annotations

import gc
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from gc import get_referents
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from helpers_allocator import ROUND, StandInGpu
from helpers_heap import holders_of, names_and_bytes

from gpuwidget.heap import heap_walk, object_references
from gpuwidget.heap.find_holders import find_holders
from gpuwidget.heap.heap_walk import BlockOwners, Limits, Root
from gpuwidget.measure.holder_ranking import rank_holders
from gpuwidget.model.torch_state import DeviceBlocks
from gpuwidget.pytorch import allocator

torch: Any = pytest.importorskip("torch")


def test_tensors_in_all_kinds_of_objects(gpu: StandInGpu) -> None:
    """A search finds tensors in containers, attributes, slots, closures, generators, errors and classes."""

    class Slots:
        __slots__ = ("kept",)
        kept: object

    @dataclass
    class Record:
        kept: object

    def generator(kept: object) -> Iterator[object]:
        yield 1
        yield kept

    def closure(kept: object) -> Any:
        return lambda: kept

    def default(kept: object = gpu.empty(1)) -> None: ...

    def failing(kept: object) -> None:
        raise ValueError

    slots, running = Slots(), generator(gpu.empty(1))
    slots.kept = gpu.empty(1)
    next(running)
    try:
        failing(gpu.empty(1))
    except ValueError as raised:
        error = raised
    ways = {
        "a_list": [gpu.empty(1)],
        "a_tuple": (gpu.empty(1),),
        "a_dict": {"k": gpu.empty(1)},
        "by_key": {gpu.empty(1): 1},
        "a_set": {gpu.empty(1)},
        "a_deque": deque([gpu.empty(1)]),
        "a_namespace": SimpleNamespace(kept=gpu.empty(1)),
        "a_record": Record(gpu.empty(1)),
        "slots": slots,
        "closure": closure(gpu.empty(1)),
        "default": default,
        "running": running,
        "error": error,
        "a_class": type("Own", (), {"kept": gpu.empty(1), "__module__": "__main__"}),
        "a_method": gpu.empty(1).numel,
        "deep": [[[[[{"x": [gpu.empty(1)]}]]]]],
    }
    holders = holders_of(gpu, ways)
    assert {holder.names for holder in holders} == {(name,) for name in ways}
    assert {holder.bytes for holder in holders} == {ROUND}


def test_the_shallowest_name_is_the_owner(gpu: StandInGpu) -> None:
    """If several variables lead to a tensor, the variable with the shortest path to the tensor owns it. The
    order in which the variables were defined does not matter."""
    x = gpu.empty(1)
    deep = {"a": {"b": x}}
    assert names_and_bytes(holders_of(gpu, {"deep": deep, "near": [x]})) == [
        (("near", "deep['a']['b']"), ROUND)
    ]


def test_a_variable_owns_before_the_notebook(gpu: StandInGpu) -> None:
    """If a variable and an old cell result such as ``Out[3]`` hold the same tensor, the variable owns it."""
    x, other = gpu.empty(1), gpu.empty(1000)
    holders = holders_of(gpu, {"x": x}, {"Out[3]": x, "_3": x, "Out[4]": other, "_": other})
    assert [(holder.kind, holder.names) for holder in holders] == [
        ("notebook", ("Out[4]", "_")),
        ("variable", ("x", "Out[3]", "_3")),
    ]


def test_no_user_code_runs(gpu: StandInGpu) -> None:
    """A search calls no special method or property of a user's class or of its metaclass."""

    def forbidden(*_: object) -> Any:
        raise AssertionError("user code ran")

    hooks = ("__getattr__", "__getattribute__", "__len__", "__iter__", "__eq__", "__repr__", "__bool__")
    body = {**dict.fromkeys(hooks, forbidden), "__hash__": lambda self: 1, "__module__": "__main__"}
    body |= {"__class__": property(forbidden), "device": property(forbidden), "__dir__": forbidden}

    class Meta(type):
        __instancecheck__ = __subclasscheck__ = __getattribute__ = forbidden
        __eq__ = __hash__ = __dir__ = forbidden

    class Incomparable(type):
        __eq__ = forbidden  # makes the classes of this metaclass unhashable
        __hash__ = None  # type: ignore[assignment]

    hostile = Meta("Hostile", (), dict(body))
    a_list: Any = type("HostileList", (list,), dict(body))()
    list.append(a_list, gpu.empty(1))
    a_dict: Any = type("HostileDict", (dict,), dict(body))()
    dict.__setitem__(a_dict, "k", gpu.empty(1))
    plain: Any = Meta("Plain", (), dict(body))
    incomparable: Any = Incomparable("Other", (), dict(body))
    one: Any = object.__new__(plain)
    object.__setattr__(one, "kept", gpu.empty(1))
    other: Any = object.__new__(incomparable)
    object.__setattr__(other, "also", {one: object.__getattribute__(one, "kept")})
    unnamed = Incomparable("Unnamed", (), {})
    del unnamed.__module__
    own_tensor = type("OwnTensor", (torch.Tensor,), {"device": property(forbidden)})
    tensor = torch.Tensor._make_subclass(own_tensor, gpu.empty(4))
    ways = {"hostile": hostile, "a_list": a_list, "a_dict": a_dict, "one": one, "tensor": tensor}
    holders = holders_of(gpu, {**ways, "other": other, "unnamed": unnamed, "nameless": unnamed()})
    assert {holder.names for holder in holders} == {
        *(("a_list",), ("a_dict",), ("tensor",)),
        ("one", "other"),
    }


def test_odd_tensors(gpu: StandInGpu) -> None:
    """The memory of a sparse, CSR or wrapper tensor is the memory of its parts.

    Fake and meta tensors have no memory.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    indices, values = gpu.empty(1, 3, dtype=torch.int64), gpu.empty(3)
    indices.copy_(torch.arange(3))
    sparse = torch.sparse_coo_tensor(indices, values, (4,), check_invariants=False)
    crow, col, data = gpu.empty(3, dtype=torch.int64), gpu.empty(2, dtype=torch.int64), gpu.empty(2)
    crow.copy_(torch.arange(3))
    col.zero_()
    csr = torch.sparse_csr_tensor(crow, col, data, (2, 2), check_invariants=False)
    with FakeTensorMode():
        fake = torch.empty(3)
    inner = gpu.empty(8)
    body = {"__torch_dispatch__": classmethod(lambda *_: NotImplemented)}
    wrapper = torch.Tensor._make_wrapper_subclass(type("Wrapper", (torch.Tensor,), body), (8,))
    wrapper.inner = inner
    kept: list[Any] = []

    def keep(part: Any) -> Any:
        kept.append(part)
        return part

    torch.vmap(keep)(torch.zeros(3))
    odd = {
        "sparse": sparse,
        "csr": csr,
        "fake": fake,
        "meta": torch.empty(10**9, device="meta"),
        "wrapper": wrapper,
        "batched": kept[0],
        "nested": torch.nested.nested_tensor([torch.zeros(2)], layout=torch.jagged),
        "mkldnn": torch.zeros(4, 4).to_mkldnn() if torch.backends.mkldnn.is_available() else None,
    }
    del indices, values, crow, col, data, inner
    assert {holder.names: holder.bytes for holder in holders_of(gpu, odd)} == {
        ("sparse",): 2 * ROUND,
        ("csr",): 3 * ROUND,
        ("wrapper",): ROUND,
    }


def test_gradients_are_read_only_where_blocks_have_no_owner(gpu: StandInGpu) -> None:
    """If every block already has an owner, a search does not read gradients.

    Reading a gradient would create a Python object that remains after the search.
    """
    x = gpu.empty(4).requires_grad_()
    (x * 2).sum().backward()  # the gradient is on the CPU, so it holds no GPU block
    before = count_tensors()
    assert names_and_bytes(holders_of(gpu, {"x": x})) == [(("x",), ROUND)]
    assert count_tensors() == before


def test_gradients_of_wrapped_parameters(gpu: StandInGpu) -> None:
    """The gradient of a parameter that wraps another tensor, as with FSDP and DTensor, belongs to the
    parameter."""

    class Wrapper(torch.Tensor):  # type: ignore[misc]
        inner: Any

        @staticmethod
        def __new__(cls: Any, inner: Any) -> Any:
            made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            made.inner = inner
            return made

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.ops.aten.detach.default:
                return cls(args[0].inner)
            return NotImplemented

    parameter = torch.nn.Parameter(Wrapper(gpu.empty(1000)))
    parameter.grad = Wrapper(gpu.empty(1000))
    assert names_and_bytes(holders_of(gpu, {"parameter": parameter})) == [(("parameter",), 2 * 4096)]
    gradient, hidden = (
        parameter.grad.inner,
        gpu.empty(1),
    )  # No variable leads to ``hidden``, so the search also reads gradients.
    names = {"parameter": parameter, "gradient": gradient}
    assert names_and_bytes(holders_of(gpu, names)) == [
        (("gradient", "parameter.grad.inner"), 4096),
        (("parameter",), 4096),
        ((), ROUND),
    ]
    del hidden


def test_excluded_objects_are_not_followed(gpu: StandInGpu) -> None:
    """A search does not follow references to excluded objects, such as the shell, or to a function's module.

    A widget with a reference to the shell does not own the shell's tensors, and a function does not own the
    tensors of its module.
    """
    shell = SimpleNamespace(result=gpu.empty(1))
    roots = [Root("widget", [shell], "variable"), Root("function", holders_of, "variable")]
    globals()["_kept"] = gpu.empty(1)
    try:
        blocks = allocator.memory_blocks()
        reached = find_holders(roots, blocks, excluded=[shell])
        assert reached.owners[0] == [None, None]
    finally:
        del globals()["_kept"]


def test_a_user_module(gpu: StandInGpu) -> None:
    """A tensor in a user's module is named as an attribute of the module, such as ``mine.x``."""
    module = {"CACHE": [gpu.empty(1)], "x": None}
    x = gpu.empty(1000)
    module["x"] = x
    roots = [Root("x", x, "variable"), Root("mine", module, "variable", is_namespace=True)]
    blocks = allocator.memory_blocks()
    holders = rank_holders(roots, find_holders(roots, blocks), blocks)
    assert names_and_bytes(holders) == [(("x", "mine.x"), 4096), (("mine",), ROUND)]


def test_classes_of_user_modules(gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search finds a tensor in a class of a user's module, but does not search classes of installed
    modules."""
    holders = []
    for name, file in (("mine", "/home/ada/mine.py"), ("theirs", "/usr/lib/site-packages/theirs.py")):
        module = ModuleType(name)
        module.__file__ = file
        monkeypatch.setitem(sys.modules, name, module)
        config = type("Config", (), {"__module__": name, "cache": [gpu.empty(1)]})
        holders += names_and_bytes(holders_of(gpu, {name: config}))
        del config
        gc.collect()
    assert holders == [(("mine",), ROUND), ((), ROUND)]


def test_the_walk_is_limited(gpu: StandInGpu) -> None:
    """A search that reaches its object limit is incomplete.

    The memory that it did not reach is listed without an owner, so that the total stays exact.
    """
    far: object = [gpu.empty(1)]
    for _ in range(50):
        far = [far]
    assert names_and_bytes(holders_of(gpu, {"far": far}, max_objects=20)) == [((), ROUND)]
    roots = [Root("far", far, "variable")]
    assert find_holders(roots, allocator.memory_blocks(), max_objects=20).complete is False
    assert find_holders(roots, allocator.memory_blocks()).complete is True


def test_a_large_data_set_costs_no_more_than_the_limit(
    gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large a data set is, a search reads no more of its objects and items than the search's limits
    allow."""
    counts: list[int] = []

    def referents(*values: object) -> list[object]:
        found = get_referents(*values)
        counts.append(len(found))
        return found

    monkeypatch.setattr(heap_walk, "get_referents", referents)
    monkeypatch.setattr(object_references, "get_referents", referents)
    data = [[[n] for n in range(1000)] for _ in range(100)]
    roots = [Root("data", data, "variable"), Root("x", gpu.empty(1), "variable")]
    reached = find_holders(roots, allocator.memory_blocks(), max_objects=100)
    assert (reached.complete, reached.owners) == (False, {0: [1]})
    assert sum(counts) <= 2 * 100 * 20


def test_unreadable_graphs(gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch cannot list the tensors saved by autograd, the search returns the names of the variables that
    have an autograd graph."""
    monkeypatch.setattr(heap_walk, "can_read_saved_tensors", lambda torch: False)
    x = torch.zeros(3, requires_grad=True)
    loss = (x * 2).sum()
    roots = [Root(name, value, "variable") for name, value in {"x": x, "loss": loss, "n": 3}.items()]
    assert find_holders(roots, {}).unreadable_graphs == ("loss",)


def count_tensors() -> int:
    """Return the number of tensor objects that Python's garbage collector tracks."""
    gc.collect()
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())


def test_the_number_of_items_limits_a_search() -> None:
    """A search may read 20 times as many container items as it may visit objects. If it has read more items,
    the search ends."""
    limits = Limits(10, None)
    limits.items_left -= 200
    assert (limits.max_objects, limits.exceeded()) == (10, False)
    limits.items_left -= 1
    assert limits.exceeded() is True


def test_time_limits_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit is CPU time of the searching thread, so other load on the machine does not end a search
    early."""
    now = [3.0]
    monkeypatch.setattr(time, "thread_time", lambda: now[0])
    limits = Limits(10, 0.5)
    now[0] = 3.4
    assert limits.exceeded() is False
    now[0] = 3.5
    assert limits.exceeded() is True


def device(index: int, *blocks: tuple[int, int]) -> DeviceBlocks:
    """Return a device with these blocks, each given as address and size."""
    addresses, sizes = tuple(one for one, _ in blocks), tuple(size for _, size in blocks)
    return DeviceBlocks(index, addresses, sizes, sizes, sum(sizes), 0, 0, 0)


def test_the_first_root_owns_a_block() -> None:
    """A block belongs to the first root that leads to any address in it.

    All references to the block are recorded, including those from other roots.
    """
    owners = BlockOwners({0: device(0, (1000, 512), (2000, 512)), 1: device(1, (9000, 512))})
    assert owners.devices_with_unowned_blocks() == {0, 1}
    assert owners.claim(7, 2, 2100) == 0
    assert owners.claim(8, 1, 2000) == 0
    assert owners.claim(9, 1, 9511) == 1
    assert owners.by_device == {0: [None, 2], 1: [1]}
    assert owners.devices_with_unowned_blocks() == {0}
    assert owners.references == [(7, 0, 1), (8, 0, 1), (9, 1, 0)]
    firsts = [(number, blocks.index, position) for number, blocks, position in owners.first_references()]
    assert firsts == [(7, 0, 1), (9, 1, 0)]


def test_addresses_outside_all_blocks() -> None:
    """An address outside all blocks, such as a CPU address, belongs to no device and gives no block an
    owner."""
    owners = BlockOwners({0: device(0, (1000, 512), (2000, 512)), 1: device(1)})
    assert [owners.claim(1, 0, address) for address in (0, 999, 1512, 2512)] == [None] * 4
    assert (owners.by_device, owners.references) == ({0: [None, None], 1: []}, [])
