"""Plan and Routes: pooling over NumPy arrays, for repeated use.

A Plan is made once per problem and then called; every call checks its arrays (type, shape, contiguity), passes raw addresses
to the library and lets go of the GIL. Inputs that are not dense are copied; outputs given with out= must be dense, writable,
of the right type and shape, and apart from the inputs, and are untouched when anything is wrong.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, Optional, Sequence, Tuple, Union

import numpy as np

from . import _abi
from ._arrays import address, as_array, dtype_code, to_dtype
from ._core import FIRST, PROPAGATE_FIRST, CorePlan, Ints, Padding, code, freeze, make_problem, parse_problem, to_int, to_shape

_empty = np.empty
_ndarray = np.ndarray
_BYTES = np.dtype(np.uint8)
_INT64 = np.dtype(np.int64)


class Routes:
    """Which tap won each window: the saved Jacobian of one max pooling, a few bits per output (docs/routes.md)."""

    __slots__ = ("_plan", "_data")

    def __init__(self, plan: "Plan", data: np.ndarray) -> None:
        self._plan = plan
        self._data = plan._routes(data)

    @property
    def plan(self) -> "Plan":
        return self._plan

    @property
    def data(self) -> np.ndarray:
        """The bytes, dense."""
        return self._data

    @property
    def nbytes(self) -> int:
        return self._data.nbytes

    def indices(self, numbering: str = "torch") -> np.ndarray:
        """The same in a framework's numbering: torch, tensorflow, tensorflow_batch, onnx or onnx_column."""
        return self.plan.indices(self, numbering)

    def jacobian(self) -> Any:
        return self.plan.jacobian(self)

    def __reduce__(self) -> Any:
        return Routes, (self.plan, self.data)

    def __repr__(self) -> str:
        return f"Routes({self.plan.text!r}, {self.plan.route_bits} bits per output, {self.nbytes} bytes)"


class Plan(CorePlan):
    """One pooling problem, checked and ready to run.

    >>> plan = Plan((8, 64, 112, 112), kernel=3, stride=2, padding=1)
    >>> y, routes = plan.forward_routes(x)
    >>> dx = plan.backward(dy, routes)

    `shape` is x's, in the memory order of `layout`. The other arguments are those of poolgrad.max_pool, and: kind ("max" or
    "avg"), count_padding and divisor (average pooling), route_bits (0: the smallest that fits), bias (True: relu is of
    x + bias, which forward and forward_routes are then given), threads (0: all), algorithm
    (a name from explain(), None: the fastest). outputs is the number of windows of adaptive pooling, which go with kernel None.
    """

    def __init__(
        self,
        shape: Sequence[int],
        kernel: Optional[Ints],
        stride: Optional[Ints] = None,
        padding: Padding = 0,
        dilation: Ints = 1,
        *,
        dtype: Any = np.float32,
        kind: str = "max",
        rounding: str = "floor",
        layout: str = "channels_first",
        ties: str = FIRST,
        nan: str = PROPAGATE_FIRST,
        dialect: Optional[str] = None,
        count_padding: Optional[bool] = None,
        divisor: Optional[int] = None,
        route_bits: int = 0,
        relu: bool = False,
        bias: bool = False,
        outputs: Optional[Ints] = None,
        starts: Any = None,
        sizes: Any = None,
        threads: int = 0,
        algorithm: Optional[str] = None,
    ) -> None:
        dtype = to_dtype(dtype)
        shape = to_shape("shape", shape)
        problem = make_problem(
            shape, dtype_code(dtype), kernel, stride, padding, dilation,
            kind=kind, rounding=rounding, layout=layout, ties=ties, nan=nan, dialect=dialect,
            count_padding=count_padding, divisor=divisor, route_bits=route_bits, relu=relu, bias=bias, outputs=outputs, starts=starts,
            sizes=sizes,
        )  # fmt: skip
        self._setup(problem, dtype, threads, algorithm)

    def _setup(self, problem: _abi.Problem, dtype: Any, threads: int, algorithm: Optional[str]) -> None:
        super().__init__(problem, algorithm)
        self.dtype = dtype
        self.threads = to_int("threads", threads, 32)
        if not 0 <= self.threads <= _abi.MOST_THREADS:
            raise ValueError(f"threads is {threads}; it must be from 0 (all) to {_abi.MOST_THREADS}")
        self._exec = _abi.make_exec(self.threads) if self.threads else None
        self._exec_address = ctypes.addressof(self._exec) if self._exec else None
        self._routes_shape = (self.route_bytes,)
        self._keeps_routes = problem.kind == _abi.KINDS["max"]
        self.bias_shape = (problem.channels,) if problem.bias else None
        library = _abi.library()
        self._forward = library.poolgrad_forward if self.bias_shape is None else library.poolgrad_forward_bias
        self._backward = library.poolgrad_backward

    @classmethod
    def parse(cls, text: str, *, threads: int = 0, algorithm: Optional[str] = None) -> "Plan":
        """A plan from the one-line form: Plan.parse("max f32 nchw 8x64x112x112 k3 s2 p1")."""
        return cls._of(parse_problem(text), None, threads, algorithm)

    @classmethod
    def _of(cls, problem: _abi.Problem, dtype: Any, threads: int, algorithm: Optional[str]) -> "Plan":
        if problem.device != 0:
            raise ValueError("the problem is on CUDA; the NumPy functions take CPU memory (use poolgrad.torch or poolgrad.jax)")
        if dtype is None:
            dtype = to_dtype(_NAMES[problem.dtype])
        self = cls.__new__(cls)
        self._setup(problem, dtype, threads, algorithm)
        return self

    def with_dtype(self, dtype: Any) -> "Plan":
        """The same windows for another element type. Routes do not depend on the type and serve both."""
        dtype = to_dtype(dtype)
        return self if dtype == self.dtype else _with_dtype(self, dtype)

    # ---- running --------------------------------------------------------------------------------------------------------

    def forward(self, x: Any, out: Optional[np.ndarray] = None, *, bias: Any = None) -> np.ndarray:
        """y, without keeping routes. bias: one per channel, of a plan that was made for it."""
        x = self._input(x, self.x_shape, "x")
        y = _empty(self.y_shape, self.dtype) if out is None else self._output(out, self.y_shape, self.dtype, "out", x=x)
        if bias is None and self.bias_shape is None:
            status = self._forward(self.handle, address(x), address(y), None, self._exec_address)
        else:
            bias = self._bias(bias, out=out)
            status = self._forward(self.handle, address(x), address(bias), address(y), None, self._exec_address)
        if status:
            _abi.raise_status(status)
        return y

    def forward_routes(
        self, x: Any, out: Optional[np.ndarray] = None, routes_out: Optional[np.ndarray] = None, *, bias: Any = None
    ) -> Tuple[np.ndarray, Routes]:
        """(y, routes); bias is forward's, routes_out is a uint8 array of route_bytes entries."""
        self._want_routes()
        x = self._input(x, self.x_shape, "x")
        y = _empty(self.y_shape, self.dtype) if out is None else self._output(out, self.y_shape, self.dtype, "out", x=x)
        if routes_out is None:
            routes = _empty(self._routes_shape, _BYTES)
        else:
            routes = self._output(routes_out, self._routes_shape, _BYTES, "routes_out", x=x, out=y)
        if bias is None and self.bias_shape is None:
            status = self._forward(self.handle, address(x), address(y), address(routes), self._exec_address)
        else:
            bias = self._bias(bias, out=out, routes_out=routes_out)
            status = self._forward(self.handle, address(x), address(bias), address(y), address(routes), self._exec_address)
        if status:
            _abi.raise_status(status)
        return y, _kept(self, routes)

    def backward(
        self, dy: Any, routes: Union[Routes, np.ndarray, None] = None, out: Optional[np.ndarray] = None
    ) -> np.ndarray:
        """dx from dy and the routes kept by forward_routes; average pooling needs none."""
        saved = self._routes(routes) if self._keeps_routes else None
        dy = self._input(dy, self.y_shape, "dy")
        dx = (
            _empty(self.x_shape, self.dtype)
            if out is None
            else self._output(out, self.x_shape, self.dtype, "out", dy=dy, routes=saved)
        )
        status = self._backward(
            self.handle, address(dy), None if saved is None else address(saved), address(dx), self._exec_address
        )
        if status:
            _abi.raise_status(status)
        return dx

    def bias_gradient(self, dy: Any, routes: Union[Routes, np.ndarray], out: Optional[np.ndarray] = None) -> np.ndarray:
        """dbias, the sum of dy over the outputs of each channel that have a route; in f64, rounded at the end."""
        saved = self._routes(routes)
        dy = self._input(dy, self.y_shape, "dy")
        shape = self.bias_shape or (0,)
        dbias = self._result(out, shape, self.dtype, dy=dy, routes=saved)
        self._run("poolgrad_bias_gradient", address(dy), address(saved), address(dbias), self._exec_address)
        return dbias

    def backward_x(self, dy: Any, x: Any, out: Optional[np.ndarray] = None) -> np.ndarray:
        """The same dx for a caller that kept x."""
        dy = self._input(dy, self.y_shape, "dy")
        x = self._input(x, self.x_shape, "x")
        dx = self._result(out, self.x_shape, self.dtype, dy=dy, x=x)
        self._run("poolgrad_backward_x", address(dy), address(x), address(dx), self._exec_address)
        return dx

    def gather(
        self, tx: Any, routes: Union[Routes, np.ndarray, None] = None, out: Optional[np.ndarray] = None
    ) -> np.ndarray:
        """ty = S tx: the tangent of y (forward mode), and the gradient of the gradient."""
        saved = self._routes(routes) if self._keeps_routes else None
        tx = self._input(tx, self.x_shape, "tx")
        ty = self._result(out, self.y_shape, self.dtype, tx=tx, routes=saved)
        self._run(
            "poolgrad_gather", address(tx), None if saved is None else address(saved), address(ty), self._exec_address
        )
        return ty

    def unpool(self, y: Any, routes: Union[Routes, np.ndarray], out: Optional[np.ndarray] = None) -> np.ndarray:
        """x = y at each output's route, 0 elsewhere."""
        saved = self._routes(routes)
        y = self._input(y, self.y_shape, "y")
        x = self._result(out, self.x_shape, self.dtype, y=y, routes=saved)
        self._run("poolgrad_unpool", address(y), address(saved), address(x), self._exec_address)
        return x

    def jacobian(self, routes: Union[Routes, np.ndarray, None] = None) -> Any:
        """S itself, rows y and columns x in memory order: a scipy.sparse.csr_matrix, or (values, columns, row_start)."""
        saved = self._routes(routes) if self._keeps_routes else None
        saved_address = None if saved is None else address(saved)
        row_start = _empty(self.y_elements + 1, _INT64)
        self._run("poolgrad_jacobian", saved_address, address(row_start), None, None)
        columns = _empty(int(row_start[-1]), _INT64)
        values = _empty(columns.shape, np.float64)
        self._run("poolgrad_jacobian", saved_address, address(row_start), address(columns), address(values))
        try:
            from scipy.sparse import csr_matrix
        except ImportError:
            return values, columns, row_start
        return csr_matrix((values, columns, row_start), shape=(self.y_elements, self.x_elements))

    # ---- framework indices ----------------------------------------------------------------------------------------------

    def indices(
        self, routes: Union[Routes, np.ndarray], numbering: str = "torch", out: Optional[np.ndarray] = None
    ) -> np.ndarray:
        """One int64 per output; -1 where there is no route. Ties first and last only."""
        number = code("numbering", numbering, _abi.NUMBERINGS)
        saved = self._routes(routes)
        indices = self._result(out, self.y_shape, _INT64, routes=saved)
        self._run("poolgrad_routes_to_indices", address(saved), number, address(indices), self._exec_address)
        return indices

    def routes_from_indices(self, indices: Any, numbering: str = "torch") -> Routes:
        """Routes from a framework's indices, each of which must name a valid tap of its own window (or be -1)."""
        number = code("numbering", numbering, _abi.NUMBERINGS)
        self._want_routes()
        given = self._indices(indices)
        routes = _empty(self._routes_shape, _BYTES)
        self._run("poolgrad_routes_from_indices", address(given), number, address(routes))
        return _kept(self, routes)

    def unpool_indices(
        self, y: Any, indices: Any, numbering: str = "torch", index_shape: Optional[Sequence[int]] = None
    ) -> np.ndarray:
        """Unpool by indices that may point outside their windows. index_shape: the spatial shape they are numbered in."""
        number = code("numbering", numbering, _abi.NUMBERINGS)
        y = self._input(y, self.y_shape, "y")
        given = self._indices(indices)
        shape = None
        if index_shape is not None:
            sizes = to_shape("index_shape", index_shape)
            if len(sizes) != self.rank:
                raise ValueError(f"index_shape has {len(sizes)} entries; it needs one per spatial axis: {self.rank}")
            shape = (ctypes.c_int64 * 3)(*sizes)
        x = _empty(self.x_shape, self.dtype)
        self._run(
            "poolgrad_unpool_indices", address(y), address(given), number,
            None if shape is None else ctypes.addressof(shape), address(x),
        )  # fmt: skip
        return x

    # ---- checks ---------------------------------------------------------------------------------------------------------

    def _run(self, name: str, *arguments: Any) -> None:
        status = getattr(_abi.library(), name)(self.handle, *arguments)
        if status:
            _abi.raise_status(status)

    def _input(self, array: Any, shape: Tuple[int, ...], name: str) -> np.ndarray:
        if (
            type(array) is _ndarray
            and array.dtype is self.dtype
            and array.shape == shape
            and array.flags.c_contiguous
            and array.flags.aligned
        ):
            return array
        array = as_array(array, name)
        if array.dtype != self.dtype:
            raise TypeError(f"{name} has the type {array.dtype}; the plan was made for {self.dtype}")
        if array.shape != shape:
            raise ValueError(f"{name} has the shape {array.shape}; the plan expects {shape}")
        return np.require(array, requirements=("C", "A"))

    def _bias(self, bias: Any, **written: Optional[np.ndarray]) -> np.ndarray:
        if self.bias_shape is None:
            raise ValueError("bias was given; the plan was made without one: Plan(..., relu=True, bias=True)")
        if bias is None:
            raise ValueError(f"bias is None; the plan was made for one of the shape {self.bias_shape}")
        bias = self._input(bias, self.bias_shape, "bias")
        for name, array in written.items():
            if array is not None and np.may_share_memory(array, bias):
                raise ValueError(f"{name} shares memory with bias; the result needs memory of its own")
        return bias

    def _result(self, out: Optional[np.ndarray], shape: Tuple[int, ...], dtype: Any, **others: Optional[np.ndarray]) -> np.ndarray:
        """What is written: out, or new memory. forward and backward, whose overhead shows, say it themselves."""
        return _empty(shape, dtype) if out is None else self._output(out, shape, dtype, "out", **others)

    def _output(
        self, array: Any, shape: Tuple[int, ...], dtype: Any, name: str, **others: Optional[np.ndarray]
    ) -> np.ndarray:
        """`array`, to be written; `others` are what is read or written with it, dense."""
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} is a {type(array).__name__}; it must be a NumPy array")
        if array.dtype != dtype:
            raise TypeError(f"{name} has the type {array.dtype}; the result is {dtype}")
        if array.shape != shape:
            raise ValueError(f"{name} has the shape {array.shape}; the result has {shape}")
        flags = array.flags
        if not flags.c_contiguous:
            raise ValueError(f"{name} is not contiguous; results are written to dense C-ordered arrays only")
        if not flags.aligned:
            raise ValueError(f"{name} is not aligned; results are written where an element's address is a multiple of its size")
        if not flags.writeable:
            raise ValueError(f"{name} is read-only; the result cannot be written to it")
        for other, read in others.items():
            if read is not None and np.may_share_memory(array, read):  # by their bounds: both are dense
                raise ValueError(f"{name} shares memory with {other}; the result needs memory of its own")
        return array

    def _want_routes(self) -> None:
        if not self._keeps_routes:
            raise ValueError("the plan is for average pooling, which has no routes; its gradient needs only dy")

    def _routes(self, routes: Any) -> np.ndarray:
        if type(routes) is Routes and routes._plan is self:  # checked when they were made
            return routes._data
        self._want_routes()
        if isinstance(routes, Routes):
            if not self._same_windows(routes.plan):
                raise ValueError(f"routes belong to the problem '{routes.plan.text}'; this plan's is '{self.text}'")
            routes = routes.data
        if not isinstance(routes, np.ndarray) or routes.dtype != _BYTES:
            kind = routes.dtype if isinstance(routes, np.ndarray) else type(routes).__name__
            raise TypeError(f"routes is a {kind}; it must be the Routes that forward_routes gave, or their uint8 array")
        if routes.size != self.route_bytes:
            raise ValueError(f"routes has {routes.size} bytes; the plan's routes have {self.route_bytes}")
        return np.ascontiguousarray(routes)

    def _indices(self, indices: Any) -> np.ndarray:
        given = as_array(indices, "indices")
        if given.dtype.kind not in "iu":
            raise TypeError(f"indices has the type {given.dtype}; indices are integers")
        if given.shape != self.y_shape:
            raise ValueError(f"indices has the shape {given.shape}; the plan expects {self.y_shape}")
        if given.dtype == np.uint64 and given.size and int(given.max()) >= 1 << 63:
            raise ValueError(f"indices has the entry {int(given.max())}; an index must be less than 2^63")
        return np.ascontiguousarray(given, _INT64)

    def _same_windows(self, other: "Plan") -> bool:
        return self.route_bits == other.route_bits and self._windows() == other._windows()

    def _windows(self) -> Any:
        return _with_type(self.problem, 0).state()

    def __reduce__(self) -> Any:
        return _restore, (self.problem.state(), self.dtype, self.threads, self._algorithm)

    def __repr__(self) -> str:
        return f"Plan({self.text!r})"


def _kept(plan: Plan, data: np.ndarray) -> Routes:
    """Routes over an array made here, which needs no check."""
    routes = Routes.__new__(Routes)
    routes._plan, routes._data = plan, data
    return routes


_NAMES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32")


def _with_type(problem: _abi.Problem, code_: int) -> _abi.Problem:
    copy = _abi.Problem.of_state(problem.state())
    copy.dtype = code_
    return copy


def _restore(state: Any, dtype: Any, threads: int, algorithm: Optional[str]) -> Plan:
    return Plan._of(_abi.Problem.of_state(state), dtype, threads, algorithm)


@lru_cache(maxsize=256)
def _with_dtype(plan: Plan, dtype: Any) -> Plan:
    return Plan._of(_with_type(plan.problem, dtype_code(dtype)), dtype, plan.threads, plan._algorithm)


@lru_cache(maxsize=1024, typed=True)  # a Default is told from the same word when given
def _cached(shape: Tuple[int, ...], dtype: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, **rules: Any) -> Plan:
    return Plan(shape, kernel, stride, padding, dilation, dtype=dtype, **rules)


_TABLES = frozenset(("outputs", "starts", "sizes"))


def cached_plan(
    shape: Tuple[int, ...], dtype: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, **rules: Any
) -> Plan:
    """Plan(shape, kernel, ..., dtype=dtype, **rules), made once; the least recently used of 1,024 is forgotten."""
    if not (
        type(kernel) is int and (stride is None or type(stride) is int) and type(padding) is int and type(dilation) is int
    ):
        kernel, stride = freeze("kernel", kernel), freeze("stride", stride)
        padding, dilation = freeze("padding", padding), freeze("dilation", dilation)
    for name in _TABLES.intersection(rules):
        rules[name] = freeze(name, rules[name])
    try:
        return _cached(shape, dtype, kernel, stride, padding, dilation, **rules)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
    return Plan(shape, kernel, stride, padding, dilation, dtype=dtype, **rules)  # which says what is wrong with its rules
