"""Who holds torch's memory: sums exact to the byte, every name, and none of the user's code run."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from gc import get_referents
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from helpers_allocator import MIB, ROUND, StandInGpu

from gpuwidget import torch_allocator, torch_storages
from gpuwidget.measure.holders import rank
from gpuwidget.measure.report import Holder
from gpuwidget.torch_storages import Root

torch: Any = pytest.importorskip("torch")


@pytest.fixture
def gpu() -> Iterator[StandInGpu]:
    """A device in use."""
    device = StandInGpu(torch)
    device.install()
    yield device
    device.remove()


def found(
    gpu: StandInGpu, variables: dict[str, object], notebook: dict[str, object] | None = None, **options: Any
) -> list[Holder]:
    """The holders, of which the sum is checked in every test."""
    roots = [Root(name, value, "variable") for name, value in variables.items()]
    roots += [Root(name, value, "notebook") for name, value in (notebook or {}).items()]
    blocks = torch_allocator.snapshot()
    reached = torch_storages.reach(roots, blocks, barred=[variables], **options)
    holders = rank(roots, reached, blocks)
    assert sum(holder.bytes for holder in holders) == gpu.allocated
    return holders


def briefly(holders: list[Holder]) -> list[tuple[tuple[str, ...], int]]:
    """Names and bytes."""
    return [(holder.names, holder.bytes) for holder in holders]


def test_bytes_are_the_allocators_blocks(gpu: StandInGpu) -> None:
    """A tensor of one byte holds the 512 that torch takes for it: the sum is torch's own figure."""
    x = gpu.empty(1, dtype=torch.uint8)
    big = gpu.empty(1000)
    assert found(gpu, {"x": x, "big": big}) == [
        Holder("variable", ("big",), "Tensor", "cuda:0", 4096, None),
        Holder("variable", ("x",), "Tensor", "cuda:0", ROUND, None),
    ]


def test_views_and_shared_storages_count_once(gpu: StandInGpu) -> None:
    """A tensor, its views, its storage and containers of them are one holder with all its names."""
    x = gpu.empty(256)
    names = {
        "batch": {"a": [x[5:]]},
        "x": x,
        "flat": x.reshape(16, 16),
        "same": x,
        "raw": x.untyped_storage(),
    }
    assert briefly(found(gpu, names)) == [(("x", "batch['a'][0]", "flat", "same", "raw"), 1024)]


def test_a_model_and_its_optimizer(gpu: StandInGpu) -> None:
    """Parameters and gradients are the model's, the state is the optimizer's, and both names are said."""
    model = gpu.move(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64)))
    model[1].num_batches_tracked.data = gpu.empty(1, dtype=torch.int64)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = gpu.like(parameter)
        optimizer.state[parameter] = {
            "step": torch.tensor(1.0),  # as torch's own, on the CPU
            "exp_avg": gpu.like(parameter),
            "exp_avg_sq": gpu.like(parameter),
        }
    weights = 16384 + 3 * ROUND
    buffers = 3 * ROUND
    holders = found(gpu, {"optimizer": optimizer, "model": model})
    assert briefly(holders) == [
        (("model", "optimizer"), 2 * weights + buffers),
        (("optimizer",), 2 * weights),
    ]
    assert [holder.type for holder in holders] == ["Sequential", "AdamW"]


def test_gradients_are_touched_only_where_memory_is_unexplained(gpu: StandInGpu) -> None:
    """Looking makes no lasting Python object of a gradient while everything is accounted for without it."""
    x = gpu.empty(4).requires_grad_()
    (x * 2).sum().backward()  # its gradient is on the CPU: nothing of the device is unexplained
    before = tensors()
    assert briefly(found(gpu, {"x": x})) == [(("x",), ROUND)]
    assert tensors() == before


def test_the_rest_is_unknown(gpu: StandInGpu) -> None:
    """What no name leads to is one holder of its own, never left out of the sum."""
    x = gpu.empty(1000)
    hidden = gpu.empty(5000)
    assert [(holder.kind, holder.names, holder.bytes) for holder in found(gpu, {"x": x})] == [
        ("unknown", (), 20480),
        ("variable", ("x",), 4096),
    ]
    del hidden
    assert briefly(found(gpu, {"x": x})) == [(("x",), 4096)]


def test_every_way_to_keep_a_tensor(gpu: StandInGpu) -> None:
    """Containers, attributes, slots, closures, defaults, generators, errors, classes: found, and named."""

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
    holders = found(gpu, ways)
    assert {holder.names for holder in holders} == {(name,) for name in ways}
    assert {holder.bytes for holder in holders} == {ROUND}


def test_names_of_parts(gpu: StandInGpu) -> None:
    """Another name that leads to a tensor is written as a person would write it."""
    x = gpu.empty(1)
    layer = torch.nn.Linear(2, 2, bias=False)
    layer.weight.data = x

    class Slots:
        __slots__ = ("part",)
        part: object

    slots = Slots()
    slots.part = (0, x)
    inside = SimpleNamespace(model=torch.nn.Sequential(layer))
    grad = gpu.empty(2, 2).requires_grad_()
    grad.grad = gpu.empty(2, 2)
    hidden = gpu.empty(1)
    names = {
        "x": x,
        "slots": slots,
        "inside": inside,
        "by_number": {3: x},
        "odd": {(1, 2): x},
        "g": grad.grad,
        "grad": grad,
    }
    holders = {holder.names[0]: holder.names for holder in found(gpu, names) if holder.names}
    assert holders["x"] == ("x", "slots.part[1]", "inside.model.0.weight", "by_number[3]", "odd[…]")
    assert holders["g"] == ("g", "grad.grad")
    del hidden


def test_the_shallowest_name_is_the_owner(gpu: StandInGpu) -> None:
    """A variable of its own comes before a container of it, whatever was defined first."""
    x = gpu.empty(1)
    deep = {"a": {"b": x}}
    assert briefly(found(gpu, {"deep": deep, "near": [x]})) == [(("near", "deep['a']['b']"), ROUND)]


def test_what_a_variable_names_is_not_the_notebooks(gpu: StandInGpu) -> None:
    """A result that a variable holds too is the variable's: freeing the result would release nothing."""
    x, other = gpu.empty(1), gpu.empty(1000)
    holders = found(gpu, {"x": x}, {"Out[3]": x, "_3": x, "Out[4]": other, "_": other})
    assert [(holder.kind, holder.names) for holder in holders] == [
        ("notebook", ("Out[4]", "_")),
        ("variable", ("x", "Out[3]", "_3")),
    ]


def test_no_code_of_the_users_runs(gpu: StandInGpu) -> None:
    """Properties, __getattr__, __len__, __iter__, __eq__, __class__ of hostile classes are never asked, nor
    what their metaclasses make of comparing and hashing classes."""

    def forbidden(*_: object) -> Any:
        raise AssertionError("user code ran")

    hooks = ("__getattr__", "__getattribute__", "__len__", "__iter__", "__eq__", "__repr__", "__bool__")
    body = {**dict.fromkeys(hooks, forbidden), "__hash__": lambda self: 1, "__module__": "__main__"}
    body |= {"__class__": property(forbidden), "device": property(forbidden), "__dir__": forbidden}

    class Meta(type):
        __instancecheck__ = __subclasscheck__ = __getattribute__ = forbidden
        __eq__ = __hash__ = __dir__ = forbidden

    class Incomparable(type):
        __eq__ = forbidden  # which makes its classes unhashable
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
    holders = found(gpu, {**ways, "other": other, "unnamed": unnamed, "nameless": unnamed()})
    assert {holder.names for holder in holders} == {
        *(("a_list",), ("a_dict",), ("tensor",)),
        ("one", "other"),
    }


def test_odd_tensors(gpu: StandInGpu) -> None:
    """Sparse, quantized, nested, meta, fake, wrapped and functorch's tensors are counted or left unknown."""
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
    assert {holder.names: holder.bytes for holder in found(gpu, odd)} == {
        ("sparse",): 2 * ROUND,
        ("csr",): 3 * ROUND,
        ("wrapper",): ROUND,
    }


def test_looking_keeps_nothing_alive(gpu: StandInGpu) -> None:
    """A tensor dropped after a look is gone at once, without a garbage collection."""
    x = gpu.empty(1000)
    seen = weakref.ref(x)
    found(gpu, {"x": x, "also": [x]})
    gc.disable()
    try:
        del x
        assert seen() is None
        assert gpu.allocated == 0
    finally:
        gc.enable()


def test_looking_sets_off_no_garbage_collection(gpu: StandInGpu) -> None:
    """Garbage that holds memory stays as it is while we look, and is unknown."""
    ring: list[object] = [gpu.empty(1000)]
    ring.append(ring)
    del ring
    many = {f"v{n}": [[n, [n]], {"n": [n]}] for n in range(5000)}
    roots = [Root(name, value, "variable") for name, value in many.items()]
    blocks = torch_allocator.snapshot()
    before = [generation["collections"] for generation in gc.get_stats()]
    torch_storages.reach(roots, blocks)
    after = [generation["collections"] for generation in gc.get_stats()]
    assert before == after
    assert gc.isenabled()
    gc.collect()


def test_no_dict_comes_into_being(gpu: StandInGpu) -> None:
    """An object that keeps its attributes without a dict still does so after a look, as long as no further
    name is to be written that leads through it."""

    class Plain:
        def __init__(self) -> None:
            self.kept = 1.5
            self.list = [1]

    one = Plain()
    before = sys.getsizeof(one), gc.get_referents(one)
    found(gpu, {"one": one, "x": gpu.empty(1)})
    assert (sys.getsizeof(one), gc.get_referents(one)) == before


def test_the_walk_is_bounded(gpu: StandInGpu) -> None:
    """Beyond the bound memory is unknown, the sum still exact, and the search says that it stopped."""
    far: object = [gpu.empty(1)]
    for _ in range(50):
        far = [far]
    assert briefly(found(gpu, {"far": far}, most_objects=20)) == [((), ROUND)]
    roots = [Root("far", far, "variable")]
    assert torch_storages.reach(roots, torch_allocator.snapshot(), most_objects=20).complete is False
    assert torch_storages.reach(roots, torch_allocator.snapshot()).complete is True


@pytest.mark.parametrize("kind", [list, deque])
def test_a_huge_container_is_looked_at_in_part(gpu: StandInGpu, kind: Any) -> None:
    """A list of millions costs no copy of it; its first hundred thousand items are looked at."""
    huge = kind([gpu.empty(1), *([0] * 100_000), gpu.empty(1)])
    assert briefly(found(gpu, {"huge": huge})) == [((), ROUND), (("huge",), ROUND)]


def test_no_more_is_noted_than_is_looked_at(gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large data set costs what the bound allows, in objects and in items of containers, and no more."""
    looked: list[int] = []

    def referents(*values: object) -> list[object]:
        found = get_referents(*values)
        looked.append(len(found))
        return found

    monkeypatch.setattr(torch_storages, "get_referents", referents)
    data = [[[n] for n in range(1000)] for _ in range(100)]
    roots = [Root("data", data, "variable"), Root("x", gpu.empty(1), "variable")]
    reached = torch_storages.reach(roots, torch_allocator.snapshot(), most_objects=100)
    assert (reached.complete, reached.owners) == (False, {0: [1]})
    assert sum(looked) <= 2 * 100 * 20


def test_what_lies_in_time(gpu: StandInGpu) -> None:
    """Where the time is over, variables that are tensors are known still, and the rest is unknown."""
    x, kept = gpu.empty(1000), [gpu.empty(1)]
    roots = [Root("x", x, "variable"), Root("kept", kept, "variable"), Root("Out[1]", x[1:], "notebook")]
    reached = torch_storages.reach(roots, torch_allocator.snapshot(), within_s=0)
    assert (reached.complete, reached.names) == (False, {0: ("x", "Out[1]")})
    assert sorted(reached.owners[0], key=str) == [0, None]


def test_a_long_chain(gpu: StandInGpu) -> None:
    """Objects that refer to each other in a row, one way or both ways, are told as quickly as any."""
    nodes = [SimpleNamespace() for _ in range(20_000)]
    for before, after in pairwise(nodes):
        after.before = before
    nodes[0].kept = gpu.empty(1)
    last = nodes[-1]
    assert briefly(found(gpu, {"nodes": nodes, "last": last})) == [(("nodes", "last.before"), ROUND)]
    for before, after in pairwise(nodes):
        before.after = after
    last.kept = x = gpu.empty(1)
    assert sorted(briefly(found(gpu, {"nodes": nodes, "last": last, "x": x}))) == [
        (("nodes", "last.before"), ROUND),
        (("x", "nodes", "last"), ROUND),
    ]


def test_storages_alone(gpu: StandInGpu) -> None:
    """What remembers storages is told of each block's once, without a name being looked for."""
    x = gpu.empty(1)
    roots = [Root("x", x, "variable"), Root("views", [x[:], gpu.empty(1)], "variable")]
    told: list[tuple[int, int, bool]] = []

    def remember(index: int, address: int, storage: Any) -> None:
        told.append((index, address, storage().expired()))

    blocks = torch_allocator.snapshot()
    bounds: dict[str, Any] = {"barred": (), "most_objects": 100, "within_s": 100}
    torch_storages.remember_storages(roots, blocks, remember, **bounds)
    assert sorted(told) == [(0, address, False) for address in blocks[0].addresses]


def test_gradients_of_wrapped_parameters(gpu: StandInGpu) -> None:
    """A parameter that wraps others, as FSDP's and DTensor's do, has its gradient counted for it too."""

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
    assert briefly(found(gpu, {"parameter": parameter})) == [(("parameter",), 2 * 4096)]
    gradient, hidden = parameter.grad.inner, gpu.empty(1)  # what is unexplained makes us look at gradients
    names = {"parameter": parameter, "gradient": gradient}
    assert briefly(found(gpu, names)) == [
        (("gradient", "parameter.grad.inner"), 4096),
        (("parameter",), 4096),
        ((), ROUND),
    ]
    del hidden


def test_infrastructure_is_a_wall(gpu: StandInGpu) -> None:
    """What reaches the shell, as a widget does, holds nothing of what the shell holds; nor does a function
    hold what its module holds."""
    shell = SimpleNamespace(result=gpu.empty(1))
    roots = [Root("widget", [shell], "variable"), Root("function", found, "variable")]
    globals()["_kept"] = gpu.empty(1)
    try:
        blocks = torch_allocator.snapshot()
        reached = torch_storages.reach(roots, blocks, barred=[shell])
        assert reached.owners[0] == [None, None]
    finally:
        del globals()["_kept"]


def test_a_users_module_is_looked_into(gpu: StandInGpu) -> None:
    """A tensor in a module of the user's is named as its attribute."""
    module = {"CACHE": [gpu.empty(1)], "x": None}
    x = gpu.empty(1000)
    module["x"] = x
    roots = [Root("x", x, "variable"), Root("mine", module, "variable", attributes=True)]
    blocks = torch_allocator.snapshot()
    holders = rank(roots, torch_storages.reach(roots, blocks), blocks)
    assert briefly(holders) == [(("x", "mine.x"), 4096), (("mine",), ROUND)]


def test_classes_of_the_users_modules(gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a class in a module of the user's keeps is found; one of an installed module is no way."""
    holders = []
    for name, file in (("mine", "/home/ada/mine.py"), ("theirs", "/usr/lib/site-packages/theirs.py")):
        module = ModuleType(name)
        module.__file__ = file
        monkeypatch.setitem(sys.modules, name, module)
        config = type("Config", (), {"__module__": name, "cache": [gpu.empty(1)]})
        holders += briefly(found(gpu, {name: config}))
        del config
        gc.collect()
    assert holders == [(("mine",), ROUND), ((), ROUND)]


def test_what_a_graph_saves_for_backward(gpu: StandInGpu) -> None:
    """A collected loss is named for what its graph keeps alive; after backward() that is nothing."""
    weight = gpu.empty(4, 4).requires_grad_()
    losses, batch = [], gpu.empty(2, 4)
    hidden = batch @ weight @ weight
    losses.append((hidden * gpu.empty(2, 4)).sum())
    del batch, hidden
    names = {"weight": weight, "losses": losses}
    assert briefly(found(gpu, names)) == [
        (("losses",), 2 * ROUND),
        (("weight", "losses[0].grad_fn…"), ROUND),
    ]
    blocks = torch_allocator.snapshot()
    roots = [Root(name, value, "variable") for name, value in names.items()]
    assert torch_storages.reach(roots, blocks).saved == {1: {0: 2 * ROUND}}
    losses[0].backward()
    assert briefly(found(gpu, names)) == [(("weight",), ROUND)]


def test_hooks_on_saved_tensors_are_not_called(gpu: StandInGpu) -> None:
    """What a user's hook has packed is found as it lies there; nothing is unpacked by looking."""
    unpacked: list[object] = []

    def unpack(packed: object) -> Any:
        unpacked.append(packed)
        return x.detach()

    x = gpu.empty(1000).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: {"packed": gpu.empty(10)}, unpack):
        loss = (x * 2).exp().sum()
    assert briefly(found(gpu, {"loss": loss})) == [((), 4096), (("loss",), ROUND)]
    assert unpacked == []
    loss.backward()
    assert len(unpacked) == 1


def test_operations_written_in_python(gpu: StandInGpu) -> None:
    """What a user's own autograd.Function has saved, or put on its context, belongs to the result too."""

    class Scale(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(gpu.empty(1000))
            ctx.table = [gpu.empty(2000)]
            return x * 2

    result = Scale.apply(torch.zeros(3, requires_grad=True))
    assert briefly(found(gpu, {"result": result})) == [(("result",), 4096 + 8192)]


def test_graphs_that_may_hold_more(gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch does not say what a graph saves, variables with one are named beside what is unknown."""
    monkeypatch.setattr(torch_storages, "can_look", lambda torch: False)
    x = torch.zeros(3, requires_grad=True)
    loss = (x * 2).sum()
    roots = [Root(name, value, "variable") for name, value in {"x": x, "loss": loss, "n": 3}.items()]
    assert torch_storages.reach(roots, {}).graphs == ("loss",)


# -- the allocator -------------------------------------------------------------------------------------------


def test_without_cuda_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch on the CPU, or none at all: no blocks, and a reason."""
    assert (torch_allocator.snapshot(), torch_allocator.churn()) == ({}, {})
    assert torch_allocator.why_none() == "CUDA is not initialised in this process"
    monkeypatch.delitem(sys.modules, "torch")
    assert torch_storages.reach([Root("x", 1, "variable")], {}).complete is True


def test_snapshots_leave_the_history_out(gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's allocation history, which makes snapshots slow, is left out where torch can do that."""
    x = gpu.empty(MIB)
    asked: list[bool] = []

    def new(mempool_id: object = None, include_traces: bool = True) -> list[dict[str, Any]]:
        asked.append(include_traces)
        return gpu.snapshot()

    monkeypatch.setattr(torch.cuda, "memory_snapshot", new)
    assert torch_allocator.snapshot()[0].allocated == x.nbytes
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: gpu.snapshot())
    assert torch_allocator.snapshot()[0].allocated == x.nbytes
    assert asked == [False]


def tensors() -> int:
    """Python's tensor objects."""
    gc.collect()
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())
