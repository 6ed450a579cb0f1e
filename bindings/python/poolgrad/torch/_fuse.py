"""Which ReLU of a model feeds nothing but a max pool, and so can become a part of it.

The model's own forward is asked, by torch.fx: what it calls, in which order, on whose outputs. A model that torch.fx cannot trace is
left as it is; that its parts look harmless says nothing of who else calls them. Modules are told apart by identity, whatever names
they go by, and a pair is fused only if every call of either of the two is one of such a pair. The fused ReLU hands its input on, so
nobody else may see its output (another call, an attribute, a hook around one of the two), nor write to its input before the pool has run.
"""

from __future__ import annotations

import gc
import inspect
import operator
import weakref
from collections import OrderedDict, deque
from contextlib import contextmanager
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Set, Tuple

import torch
from torch import fx, nn

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# Modules and functions whose output is new memory. Any other may hand its first input on, or a view of it.
_FRESH = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.Linear, nn.GroupNorm, nn.LayerNorm)
_ARITHMETIC = "add sub mul matmul truediv floordiv mod pow lshift rshift and or xor".split()
_FRESH_FUNCTIONS = {
    *(getattr(operator, f"__{name}__") for name in _ARITHMETIC),
    torch.add, torch.sub, torch.mul, torch.div, torch.cat, torch.stack, torch.conv1d, torch.conv2d, torch.conv3d, nn.functional.linear,
}  # fmt: skip
# Functions that hand on views of all of their inputs, and operators that do so with tuples, whose parts are taken by [].
_SEVERAL = {torch.broadcast_tensors, torch.meshgrid, torch.atleast_1d, torch.atleast_2d, torch.atleast_3d}
_OF_TUPLES = (operator.add, operator.mul)


class Pair(NamedTuple):
    relu: nn.ReLU
    pool: nn.Module
    told: str  # their names
    why_not: str  # "": fused


# What `h += 1` and its kind call.
_IN_PLACE = {f"__i{name}__": getattr(operator, f"i{name}") for name in _ARITHMETIC}


class _Proxy(fx.Proxy):
    """torch.fx takes `h += 1` for `h = h + 1`; here it is what it is to a tensor."""

    def __getattr__(self, name: str) -> "_Attribute":
        return _Attribute(self, name)


class _Attribute(_Proxy, fx.proxy.Attribute):
    """For `h.data += 1`."""


for _name, _operation in _IN_PLACE.items():
    setattr(_Proxy, _name, lambda self, other, operation=_operation: self.tracer.create_proxy("call_function", operation, (self, other), {}))


class _Tracer(fx.Tracer):
    def __init__(self, leaves: Tuple[Any, ...]) -> None:
        super().__init__()
        self._leaves = leaves
        self._made: List[Any] = []
        self._calls: List[Tuple[str, int]] = []

    def call_module(self, m: nn.Module, *arguments: Any) -> Any:
        self._calls.append((self.path_of_module(m), len(self.graph.nodes)))
        try:
            return super().call_module(m, *arguments)
        finally:
            self._calls.pop()

    def create_node(self, *arguments: Any, **options: Any) -> fx.Node:
        node = super().create_node(*arguments, **options)
        node.meta.update(around=frozenset(self._calls), recorded=torch.is_grad_enabled())
        return node

    def proxy(self, node: fx.Node) -> fx.Proxy:
        made = _Proxy(node, self)
        self._made.append(weakref.ref(made))
        return made

    def kept(self) -> Set[fx.Node]:
        """What forward has left somewhere: in an attribute, in what an attribute or a global holds, in a closure."""

        def alive() -> Set[fx.Node]:
            return {proxy.node for proxy in (made() for made in self._made) if proxy is not None}

        if not alive():
            return set()
        gc.collect()  # what only cycles held
        return alive()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, self._leaves) or super().is_leaf_module(m, module_qualified_name)


def _user(node: fx.Node) -> str:
    return "the model's output" if node.op == "output" else getattr(node.target, "__name__", str(node.target))


def _calls_of(nodes: List[fx.Node], modules: Dict[str, nn.Module], kind: Any) -> Iterator[Tuple[fx.Node, nn.Module]]:
    for node in nodes:
        if node.op == "call_module" and type(modules[node.target]) in kind:
            yield node, modules[node.target]


_LISTS = (list, deque)


def _containers(values: Iterable[Any], found: Dict[int, Any]) -> Dict[int, Any]:
    """Those among the values, and those in them, by identity."""
    for value in values:
        if isinstance(value, (dict, set, tuple, *_LISTS)) and id(value) not in found:
            found[id(value)] = value
            _containers(value.values() if isinstance(value, dict) else value, found)
    return found


def _contents(container: Any) -> List[Any]:
    return [*container, *container.values()] if isinstance(container, dict) else [*container]


@contextmanager
def _left_as_it_was(model: nn.Module) -> Iterator[None]:
    """Runs model.forward without its hooks, and undoes what forward did to the model: flags, attributes, what they hold, buffers."""
    attributes = [(module.__dict__, dict(module.__dict__)) for module in model.modules()]
    containers = _containers((value for _, kept in attributes for value in kept.values()), {}).values()
    held = [(value, _contents(value)) for value in containers if not isinstance(value, tuple)]
    buffers = [(buffer, buffer._version, buffer.detach().clone()) for buffer in model.buffers()]
    for module in model.modules():
        for hooks in _HOOKS:
            if module.__dict__.get(hooks):
                module.__dict__[hooks] = OrderedDict()
    try:
        yield
    finally:
        for there, kept in attributes:
            there.clear()
            there.update(kept)
        for container, items in held:
            now = _contents(container)
            if len(now) == len(items) and all(map(operator.is_, now, items)):  # some refuse to be written to
                continue
            container.clear()
            if isinstance(container, dict):
                items = zip(items[: len(items) // 2], items[len(items) // 2 :])
            (container.extend if isinstance(container, _LISTS) else container.update)(items)
        for buffer, version, value in buffers:
            if buffer._version != version:
                with torch.no_grad():
                    buffer.copy_(value)


def _nodes_in_both_modes(model: nn.Module, pools: Tuple[Any, ...]) -> Tuple[List[fx.Node], Set[fx.Node]]:
    """What forward does in training, and then what it does in eval mode; and what of it is kept."""
    nodes: List[fx.Node] = []
    kept: Set[fx.Node] = set()
    for training in (True, False):
        with _left_as_it_was(model), torch.enable_grad():
            for module in model.modules():
                module.training = training
            tracer = _Tracer(pools)
            nodes += tracer.trace(model).nodes
            kept |= tracer.kept()
    return nodes, kept


def _writes(node: fx.Node, modules: Dict[str, nn.Module]) -> bool:
    """Whether the call may write to one of its arguments, by torch's own way to name such calls."""
    if node.op == "call_module":
        return bool(getattr(modules[node.target], "inplace", False))
    if node.op == "call_method":
        return node.target.endswith("_") and not node.target.endswith("__") or node.target == "__setitem__"
    if node.op != "call_function":
        return False
    if node.target in _IN_PLACE.values() or node.target is operator.setitem or getattr(node.target, "__name__", "").endswith("_"):
        return True
    try:
        given = inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments
    except (TypeError, ValueError):  # C functions have no signature; theirs write where their names say so, or to out
        given = node.kwargs
    return bool(given.get("inplace")) or given.get("out") is not None


def _is_fresh(node: fx.Node, modules: Dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return isinstance(modules[node.target], _FRESH)
    return node.target in _FRESH_FUNCTIONS and node.kwargs.get("out") is None


def _shared_memory(node: fx.Node, modules: Dict[str, nn.Module], kept: Set[fx.Node]) -> str:
    """Who else may see what is done in place to the input of `node`; "": nobody."""
    while node.all_input_nodes and not _is_fresh(node, modules):
        before = node.all_input_nodes[0]
        if node.kwargs.get("out") is not None or node.target in _SEVERAL:
            return _user(node)
        if node.target is operator.getitem and before.target in _OF_TUPLES:
            return _user(before)
        others = [user for user in before.users if user is not node]
        if others or before in kept:
            return _user(others[0]) if others else "the model"
        for call in sorted(_around(before) ^ _around(node)):  # it is the output of a call that it was made in, and an input of the others
            if _has_hooks(modules[call[0]], ("_forward_hooks",) if call in _around(before) else _HOOKS):
                return f"a hook of {call[0]}"
        node = before
    return {"placeholder": "the model's caller", "get_attr": "the model"}.get(node.op, "")


def _around(node: fx.Node) -> FrozenSet[Tuple[str, int]]:
    """The calls of modules that the node is made in, its own among them: names, and how many nodes there were."""
    return node.meta["around"]


def _has_hooks(module: nn.Module, kinds: Iterable[str] = _HOOKS) -> bool:
    return any(getattr(module, hooks, None) for hooks in kinds)


def _why_not(node: fx.Node, relu: Any, modules: Dict[str, nn.Module], user: fx.Node, kept: Set[fx.Node]) -> str:
    pool = modules[user.target]
    users = list(node.users)
    if len(users) > 1:
        other = next(user for user in users if user.op != "call_module" or modules[user.target] is not pool)
        return f"the ReLU's output is also used by {_user(other)}"
    if node in kept:
        return "the model keeps the ReLU's output, or its shape, as an attribute or elsewhere"
    for word, module in (("ReLU", relu), ("pool", pool)):
        if _has_hooks(module):
            return f"the {word} has hooks, which would see other values"
    for name, _ in sorted(_around(node) ^ _around(user)):
        if _has_hooks(modules[name]):
            return f"{name} has hooks, which would see other values"
    if node.meta["recorded"] is not user.meta["recorded"]:
        return "gradients are recorded of one of the two only"
    between = node.next
    while between is not user:
        if _writes(between, modules):
            return f"{_user(between)} works in place between the two"
        between = between.next
    if relu.inplace:
        other_user = _shared_memory(node, modules, kept)
        if other_user:
            return f"the ReLU works in place, on memory that {other_user} reads, too"
    return ""


def find_pairs(model: nn.Module, pools: Tuple[Any, ...]) -> Tuple[List[Pair], str]:
    """(pairs, "") in the order of the model's forward, or ([], why the model could not be looked at). pools: the classes of pools."""
    modules = dict(model.named_modules(remove_duplicate=False))
    if not any(type(module) is nn.ReLU for module in modules.values()):
        return [], ""
    if type(model) in pools or type(model) is nn.ReLU:
        return [], ""
    try:
        nodes, kept = _nodes_in_both_modes(model, pools)
    except Exception as error:  # whatever a forward does with a tensor that has no value
        reason = str(error).strip().splitlines()
        return [], f"{type(error).__name__}: {reason[0] if reason else ''}"
    found: List[Tuple[fx.Node, fx.Node, Any, Any, str]] = []
    for node, relu in _calls_of(nodes, modules, (nn.ReLU,)):
        for user in node.users:
            if user.op == "call_module" and type(modules[user.target]) in pools:
                found.append((node, user, relu, modules[user.target], _why_not(node, relu, modules, user, kept)))
            elif user.op == "call_function" and "max_pool" in getattr(user.target, "__name__", ""):
                found.append((node, user, relu, None, "the pool is a function; only a module can be changed in place"))
    return list(_settled(nodes, modules, pools, found)), ""


def _settled(nodes: List[fx.Node], modules: Dict[str, nn.Module], pools: Tuple[Any, ...], found: Any) -> Iterator[Pair]:
    """With what follows for a module that is called several times: all of its calls, or none."""
    reasons = [why for *_, why in found]
    while True:
        good = {node for (relu_node, pool_node, *_), why in zip(found, reasons) if not why for node in (relu_node, pool_node)}
        bad: Dict[int, str] = {}
        for node, module in _calls_of(nodes, modules, (nn.ReLU, *pools)):
            if node not in good:
                what = "ReLU" if type(module) is nn.ReLU else "pool"
                bad[id(module)] = f"the {what} is used elsewhere, too, where it is not one of such a pair"
        changed = False
        for i, (_, _, relu, pool, _) in enumerate(found):
            why = bad.get(id(relu)) or bad.get(id(pool))
            if not reasons[i] and why:
                reasons[i], changed = why, True
        if not changed:
            break
    told: Set[Tuple[str, str]] = set()
    for (relu_node, pool_node, relu, pool, _), why in zip(found, reasons):
        names = (str(relu_node.target), _user(pool_node) if pool is not None else pool_node.target.__name__)
        if names not in told:
            told.add(names)
            yield Pair(relu, pool, f"{names[0]} and {names[1]}", why)
