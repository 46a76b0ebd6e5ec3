"""What the user's names lead to, and which of them owns it: everything found, and none of their code run."""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from gc import get_referents
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from helpers_allocator import ROUND, StandInGpu
from helpers_search import briefly, found

from gpuwidget.heap import heap_walk, object_references
from gpuwidget.heap.find_holders import reach
from gpuwidget.heap.roots import Root
from gpuwidget.measure.memory_holders import rank
from gpuwidget.pytorch import allocator

torch: Any = pytest.importorskip("torch")


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


def test_gradients_are_touched_only_where_memory_is_unexplained(gpu: StandInGpu) -> None:
    """Looking makes no lasting Python object of a gradient while everything is accounted for without it."""
    x = gpu.empty(4).requires_grad_()
    (x * 2).sum().backward()  # its gradient is on the CPU: nothing of the device is unexplained
    before = tensors()
    assert briefly(found(gpu, {"x": x})) == [(("x",), ROUND)]
    assert tensors() == before


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
        blocks = allocator.snapshot()
        reached = reach(roots, blocks, barred=[shell])
        assert reached.owners[0] == [None, None]
    finally:
        del globals()["_kept"]


def test_a_users_module_is_looked_into(gpu: StandInGpu) -> None:
    """A tensor in a module of the user's is named as its attribute."""
    module = {"CACHE": [gpu.empty(1)], "x": None}
    x = gpu.empty(1000)
    module["x"] = x
    roots = [Root("x", x, "variable"), Root("mine", module, "variable", attributes=True)]
    blocks = allocator.snapshot()
    holders = rank(roots, reach(roots, blocks), blocks)
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


def test_the_walk_is_bounded(gpu: StandInGpu) -> None:
    """Beyond the bound memory is unknown, the sum still exact, and the search says that it stopped."""
    far: object = [gpu.empty(1)]
    for _ in range(50):
        far = [far]
    assert briefly(found(gpu, {"far": far}, most_objects=20)) == [((), ROUND)]
    roots = [Root("far", far, "variable")]
    assert reach(roots, allocator.snapshot(), most_objects=20).complete is False
    assert reach(roots, allocator.snapshot()).complete is True


def test_no_more_is_noted_than_is_looked_at(gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large data set costs what the bound allows, in objects and in items of containers, and no more."""
    looked: list[int] = []

    def referents(*values: object) -> list[object]:
        found = get_referents(*values)
        looked.append(len(found))
        return found

    monkeypatch.setattr(heap_walk, "get_referents", referents)
    monkeypatch.setattr(object_references, "get_referents", referents)
    data = [[[n] for n in range(1000)] for _ in range(100)]
    roots = [Root("data", data, "variable"), Root("x", gpu.empty(1), "variable")]
    reached = reach(roots, allocator.snapshot(), most_objects=100)
    assert (reached.complete, reached.owners) == (False, {0: [1]})
    assert sum(looked) <= 2 * 100 * 20


def test_graphs_that_may_hold_more(gpu: StandInGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch does not say what a graph saves, variables with one are named beside what is unknown."""
    monkeypatch.setattr(heap_walk, "can_look", lambda torch: False)
    x = torch.zeros(3, requires_grad=True)
    loss = (x * 2).sum()
    roots = [Root(name, value, "variable") for name, value in {"x": x, "loss": loss, "n": 3}.items()]
    assert reach(roots, {}).graphs == ("loss",)


def tensors() -> int:
    """Python's tensor objects."""
    gc.collect()
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())
