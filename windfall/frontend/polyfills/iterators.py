"""Iterators of builtins and itertools, as Python.

Each `name_` is what the constructor does at once (it asks its arguments for their iterators, as the
real one does); the generator beside it is what the iterator does later. `MAKES` says which real
class such a generator stands for, `HALF_RUN` and `FINISHED` how a real object of that class is made
that stands where the generator does. Those which share what they hold with others (`SHARING`) are
not made: the capture begins again, and they are CPython's own from the start. Invariant: unstarted,
a generator's parameters are arguments with which the real class can be called.

One file: what an iterator does and the rows of how a real one is made of it are read together.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from types import CodeType
from typing import Any

from windfall.frontend.polyfills.core import rest
from windfall.ir.reading import flags_of

# ---------------------------------------------------------------------------------- of builtins


def map_(function: Any, /, *iterables: Any) -> Any:
    """`map(function, *iterables)`."""
    if not iterables:
        raise TypeError("map() must have at least two arguments.")
    iterators = []
    for iterable in iterables:
        iterators.append(iter(iterable))
    return _mapped(function, *iterators)


def _mapped(function: Any, *iterators: Any) -> Any:
    if len(iterators) == 1:
        for item in rest(iterators[0]):
            yield function(item)
        return
    while True:
        items = []
        for iterator in iterators:
            try:
                items.append(next(iterator))
            except StopIteration:
                return
        yield function(*items)


def filter_(function: Any, iterable: Any, /) -> Any:
    """`filter(function, iterable)`."""
    return _filtered(function, iter(iterable))


def _filtered(function: Any, iterator: Any) -> Any:
    for item in rest(iterator):
        if item if function is None or function is bool else function(item):
            yield item


def enumerate_(iterable: Any, start: int) -> Any:
    """`enumerate(iterable, start)`."""
    return _enumerated(iter(iterable), start)


def _enumerated(iterator: Any, start: int) -> Any:
    for item in rest(iterator):
        yield start, item
        start += 1


def zip_(*iterables: Any) -> Any:
    """`zip(*iterables)`."""
    iterators = []
    for iterable in iterables:
        iterators.append(iter(iterable))
    return _zipped(*iterators)


def _zipped(*iterators: Any) -> Any:
    while iterators:
        items = []
        for iterator in iterators:
            try:
                items.append(next(iterator))
            except StopIteration:
                return
        yield (*items,)


def zip_strict(*iterables: Any) -> Any:
    """`zip(*iterables, strict=True)`."""
    iterators = []
    for iterable in iterables:
        iterators.append(iter(iterable))
    return _zipped_strictly(*iterators)


_NOTHING = object()


def _zipped_strictly(*iterators: Any) -> Any:
    while iterators:
        items = []
        for iterator in iterators:
            item = next(iterator, _NOTHING)
            if item is _NOTHING:
                break
            items.append(item)
        count = len(items)
        if not count:
            for iterator in iterators[1:]:
                count += 1
                if next(iterator, _NOTHING) is not _NOTHING:
                    raise ValueError(f"zip() argument {count + 1} is longer than {_first(count)}")
            return
        if count < len(iterators):
            raise ValueError(f"zip() argument {count + 1} is shorter than {_first(count)}")
        yield (*items,)


def _first(count: int) -> str:
    return "argument 1" if count == 1 else f"arguments 1-{count}"


def iter_until(function: Any, sentinel: Any) -> Any:
    """`iter(function, sentinel)`."""
    while True:
        try:
            item = function()
        except StopIteration:
            return
        if item is sentinel or item == sentinel:
            return
        yield item


def by_index(owner: Any) -> Any:
    """`iter` of an object that has only `__getitem__`."""
    index = 0
    while True:
        try:
            item = owner[index]
        except (IndexError, StopIteration):
            return
        yield item
        index += 1


# --------------------------------------------------------------------------------- of itertools


def chain(*iterables: Any) -> Any:
    """`itertools.chain(*iterables)`: asks each for its iterator when its turn comes."""
    for iterable in iterables:
        for item in iterable:  # noqa: UP028  (objects have no `send`)
            yield item


def chain_from_iterable(iterables: Any) -> Any:
    """`itertools.chain.from_iterable(iterables)`."""
    return _chained(iter(iterables))


def _chained(iterators: Any) -> Any:
    for iterable in rest(iterators):
        for item in iterable:  # noqa: UP028  (objects have no `send`)
            yield item


def islice(iterable: Any, /, *limits: Any) -> Any:
    """`itertools.islice(iterable, [start,] stop[, step])`."""
    if len(limits) == 1:
        start, stop, step = 0, limits[0], 1
    elif len(limits) == 2:
        start, stop, step = limits[0], limits[1], 1
    else:
        start, stop, step = limits
    start = 0 if start is None else start
    step = 1 if step is None else step
    if start < 0 or (stop is not None and stop < 0):
        raise ValueError(
            "Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize."
            if len(limits) > 1
            else "Stop argument for islice() must be None or an integer: 0 <= x <= sys.maxsize."
        )
    if step < 1:
        raise ValueError("Step for islice() must be a positive integer or None.")
    return _sliced(iter(iterable), start, stop, step)


def _sliced(iterator: Any, start: int, stop: Any, step: int) -> Any:
    count, wanted = 0, start
    while True:
        try:
            while count < wanted:
                next(iterator)
                count += 1
            if stop is not None and count >= stop:
                return
            item = next(iterator)
        except StopIteration:
            return
        count += 1
        wanted += step
        if stop is not None and wanted > stop:
            wanted = stop
        yield item


def accumulate(iterable: Any, func: Any = None, *, initial: Any = None) -> Any:
    """`itertools.accumulate(iterable, func, initial=initial)`."""
    return _accumulated(iter(iterable), func, initial=initial)


def _accumulated(iterator: Any, func: Any, *, initial: Any) -> Any:
    if initial is None:
        try:
            total = next(iterator)
        except StopIteration:
            return
    else:
        total = initial
    yield total
    for item in rest(iterator):
        total = total + item if func is None else func(total, item)
        yield total


def pairwise(iterable: Any, /) -> Any:
    """`itertools.pairwise(iterable)`."""
    return _paired(iter(iterable))


def _paired(iterator: Any) -> Any:
    try:
        before = next(iterator)
    except StopIteration:
        return
    for item in rest(iterator):
        yield before, item
        before = item


def cycle(iterable: Any, /) -> Any:
    """`itertools.cycle(iterable)`."""
    return _cycled(iter(iterable))


def _cycled(iterator: Any) -> Any:
    items = []
    for item in rest(iterator):
        items.append(item)
        yield item
    while items:
        for item in items:
            yield item


def starmap(function: Any, iterable: Any, /) -> Any:
    """`itertools.starmap(function, iterable)`."""
    return _starred(function, iter(iterable))


def _starred(function: Any, iterator: Any) -> Any:
    for arguments in rest(iterator):
        yield function(*arguments)


def takewhile(predicate: Any, iterable: Any, /) -> Any:
    """`itertools.takewhile(predicate, iterable)`."""
    return _taken(predicate, iter(iterable))


def _taken(predicate: Any, iterator: Any) -> Any:
    for item in rest(iterator):
        if not predicate(item):
            return
        yield item


def dropwhile(predicate: Any, iterable: Any, /) -> Any:
    """`itertools.dropwhile(predicate, iterable)`."""
    return _dropped(predicate, iter(iterable))


def _dropped(predicate: Any, iterator: Any) -> Any:
    for item in rest(iterator):
        if not predicate(item):
            yield item
            break
    for item in rest(iterator):
        yield item


def filterfalse(predicate: Any, iterable: Any, /) -> Any:
    """`itertools.filterfalse(predicate, iterable)`."""
    return _refused(predicate, iter(iterable))


def _refused(predicate: Any, iterator: Any) -> Any:
    for item in rest(iterator):
        if not (item if predicate is None or predicate is bool else predicate(item)):
            yield item


def compress(data: Any, selectors: Any) -> Any:
    """`itertools.compress(data, selectors)`."""
    return _selected(iter(data), iter(selectors))


def _selected(data: Any, selectors: Any) -> Any:
    while True:
        try:
            item = next(data)
            chosen = next(selectors)
        except StopIteration:
            return
        if chosen:
            yield item


def zip_longest(*iterables: Any, fillvalue: Any = None) -> Any:
    """`itertools.zip_longest(*iterables, fillvalue=fillvalue)`."""
    iterators = []
    for iterable in iterables:
        iterators.append(iter(iterable))
    return _zipped_longest(*iterators, fillvalue=fillvalue)


def _zipped_longest(*iterators: Any, fillvalue: Any) -> Any:
    waiting = [*iterators]
    active = len(waiting)
    while active:
        items = []
        for index, iterator in enumerate(waiting):
            item = fillvalue
            if iterator is not None:
                try:
                    item = next(iterator)
                except StopIteration:
                    active -= 1
                    if not active:
                        return
                    waiting[index] = None
            items.append(item)
        yield (*items,)


def tee(iterable: Any, n: int = 2, /) -> Any:
    """`itertools.tee(iterable, n)`: the copies share the items that one is behind."""
    if n < 0:
        raise ValueError("n must be >= 0")
    if n == 0:
        return ()  # it does not even ask for an iterator
    iterator = iter(iterable)
    queues: list[Any] = []
    for _ in range(n):
        queues.append([])
    made = []
    for queue in queues:
        made.append(_teed(iterator, queue, queues))
    return (*made,)


def _teed(iterator: Any, queue: Any, queues: Any) -> Any:
    while True:
        if not queue:
            try:
                item = next(iterator)
            except StopIteration:
                return
            for one in queues:
                one.append(item)
        yield queue.pop(0)


def groupby(iterable: Any, key: Any = None) -> Any:
    """`itertools.groupby(iterable, key)`."""
    return _grouped(iter(iterable), key)


def _grouped(iterator: Any, key: Any) -> Any:
    # What groups share with this: [item, its key, whether there is one, the group's number].
    shared: list[Any] = [None, None, False, 0]
    try:
        _next_of_group(iterator, key, shared)
        while True:
            shared[3] += 1
            present = shared[1]
            yield present, _group(iterator, key, shared, present, shared[3])
            while shared[1] == present:
                _next_of_group(iterator, key, shared)
    except StopIteration:
        shared[2] = False
        return


def _next_of_group(iterator: Any, key: Any, shared: Any) -> None:
    shared[2] = False
    item = next(iterator)
    shared[1] = item if key is None else key(item)
    shared[0] = item
    shared[2] = True


def _group(iterator: Any, key: Any, shared: Any, present: Any, number: int) -> Any:
    while shared[3] == number and shared[2] and shared[1] == present:
        yield shared[0]
        if shared[3] != number:
            return
        try:
            _next_of_group(iterator, key, shared)
        except StopIteration:
            return


def product(*iterables: Any, repeat: int = 1) -> Any:
    """`itertools.product(*iterables, repeat=repeat)`: reads its arguments at once."""
    pools = []
    for iterable in iterables:
        pools.append(list(iterable))
    return _multiplied(pools * repeat)


def _multiplied(pools: Any) -> Any:
    for pool in pools:
        if not pool:
            return
    places = [0] * len(pools)
    while True:
        items = []
        for index, pool in enumerate(pools):
            items.append(pool[places[index]])
        yield (*items,)
        index = len(pools) - 1
        while index >= 0:
            places[index] += 1
            if places[index] < len(pools[index]):
                break
            places[index] = 0
            index -= 1
        if index < 0:
            return


def permutations(iterable: Any, r: Any = None) -> Any:
    """`itertools.permutations(iterable, r)`."""
    pool = list(iterable)
    length = len(pool) if r is None else r
    if length < 0:
        raise ValueError("r must be non-negative")
    return _permuted(pool, length)


def combinations(iterable: Any, r: int) -> Any:
    """`itertools.combinations(iterable, r)`."""
    pool = list(iterable)
    if r < 0:
        raise ValueError("r must be non-negative")
    return _combined(pool, r)


def combinations_with_replacement(iterable: Any, r: int) -> Any:
    """`itertools.combinations_with_replacement(iterable, r)`."""
    pool = list(iterable)
    if r < 0:
        raise ValueError("r must be non-negative")
    return _combined_again(pool, r)


def _permuted(pool: Any, length: int) -> Any:
    for places in places_of("permutations", len(pool), length):
        yield _picked(pool, places)


def _combined(pool: Any, length: int) -> Any:
    for places in places_of("combinations", len(pool), length):
        yield _picked(pool, places)


def _combined_again(pool: Any, length: int) -> Any:
    for places in places_of("combinations_with_replacement", len(pool), length):
        yield _picked(pool, places)


def _picked(pool: Any, places: Any) -> Any:
    items = []
    for index in places:
        items.append(pool[index])
    return (*items,)


def places_of(how: str, count: int, length: int) -> Any:
    """The index tuples of a choice: folded, they depend on numbers only."""
    return [*getattr(itertools, how)(range(count), length)]


# ------------------------------------------------------------------- real objects in their place


def _codes(rows: dict[Callable[..., Any], Any]) -> dict[CodeType, Any]:
    return {function.__code__: value for function, value in rows.items()}


class _Left:
    """Gives the items of an iterator by index, to one that goes by index from the start."""

    def __init__(self, left: Any) -> None:
        self.left = iter(left)

    def __getitem__(self, index: int) -> Any:
        return next(self.left)


_TEE: type = type(itertools.tee(())[0])
_GROUP = type(next(itertools.groupby("a"))[1])
_UNTIL = type(iter(int, 1))
_BY_INDEX = type(iter(_Left(())))
SHARING: tuple[type, ...] = (_TEE, itertools.groupby, _GROUP)
# Those that do not know that they have come to their end: what they go over is asked once more.
FORGETFUL: tuple[type, ...] = (
    map, filter, enumerate, zip, itertools.accumulate, itertools.starmap, itertools.takewhile,
    itertools.dropwhile, itertools.filterfalse, itertools.compress,
)  # fmt: skip

# The code of a generator → the class that it stands for.
MAKES: dict[CodeType, type] = _codes(
    {
        _mapped: map,
        _filtered: filter,
        _enumerated: enumerate,
        _zipped: zip,
        _zipped_strictly: zip,
        iter_until: _UNTIL,
        by_index: _BY_INDEX,
        chain: itertools.chain,
        _chained: itertools.chain,
        _sliced: itertools.islice,
        _accumulated: itertools.accumulate,
        _paired: itertools.pairwise,
        _cycled: itertools.cycle,
        _starred: itertools.starmap,
        _taken: itertools.takewhile,
        _dropped: itertools.dropwhile,
        _refused: itertools.filterfalse,
        _selected: itertools.compress,
        _zipped_longest: itertools.zip_longest,
        _teed: _TEE,
        _grouped: itertools.groupby,
        _group: _GROUP,
        _multiplied: itertools.product,
        _permuted: itertools.permutations,
        _combined: itertools.combinations,
        _combined_again: itertools.combinations_with_replacement,
    }
)


class _AskedIterator:
    """Stands for an iterator that was asked for itself already, as the real class would again."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator

    def __iter__(self) -> Any:
        return self.iterator


def _asked(iterator: Any) -> Any:
    return _AskedIterator(iterator) if flags_of(type(iterator)) & _HEAP else iterator


_HEAP = 1 << 9  # a class of the user's, whose `__iter__` is seen

# The same → what makes a real object of one that has not started, out of its parameters.
CONSTRUCTORS: dict[CodeType, Callable[..., Any]] = _codes(
    {
        _mapped: lambda function, *iterators: map(function, *map(_asked, iterators)),
        _filtered: lambda function, iterator: filter(function, _asked(iterator)),
        _enumerated: lambda iterator, start: enumerate(_asked(iterator), start),
        _zipped: lambda *iterators: zip(*map(_asked, iterators)),  # noqa: B905
        _zipped_strictly: lambda *iterators: zip(*map(_asked, iterators), strict=True),
        iter_until: iter,
        by_index: iter,
        chain: itertools.chain,
        _chained: lambda iterators: itertools.chain.from_iterable(_asked(iterators)),
        _sliced: lambda iterator, *limits: itertools.islice(_asked(iterator), *limits),
        _accumulated: lambda iterator, func, initial: itertools.accumulate(
            _asked(iterator), func, initial=initial
        ),
        _paired: lambda iterator: itertools.pairwise(_asked(iterator)),
        _cycled: lambda iterator: itertools.cycle(_asked(iterator)),
        _starred: lambda function, iterator: itertools.starmap(function, _asked(iterator)),
        _taken: lambda predicate, iterator: itertools.takewhile(predicate, _asked(iterator)),
        _dropped: lambda predicate, iterator: itertools.dropwhile(predicate, _asked(iterator)),
        _refused: lambda predicate, iterator: itertools.filterfalse(predicate, _asked(iterator)),
        _selected: lambda data, selectors: itertools.compress(_asked(data), _asked(selectors)),
        _zipped_longest: lambda *iterators, fillvalue: itertools.zip_longest(
            *map(_asked, iterators), fillvalue=fillvalue
        ),
        _grouped: lambda iterator, key: itertools.groupby(_asked(iterator), key),
        _multiplied: lambda pools: itertools.product(*pools),
        _permuted: itertools.permutations,
        _combined: itertools.combinations,
        _combined_again: itertools.combinations_with_replacement,
    }
)


def _advanced_chain(stack: Any) -> Any:
    made: Any = itertools.chain()
    made.__setstate__(stack)  # the iterator over the iterables, and that over the present one
    return made


def _advanced_slice(iterator: Any, count: int, wanted: int, stop: Any, step: int) -> Any:
    left = None if stop is None else stop - count
    return itertools.islice(_asked(iterator), wanted - count, left, step)


def _advanced_sums(iterator: Any, func: Any, total: Any) -> Any:
    made: Any = itertools.accumulate(_asked(iterator), func)
    made.__setstate__(total)
    return made


def _advanced_chain_from(iterators: Any, stack: Any) -> Any:
    return _advanced_chain((iterators, stack[-1]))


def _advanced_cycle(iterator: Any, stack: Any, items: Any, phase: int) -> Any:
    made: Any = itertools.cycle(stack[-1] if phase else _asked(iterator))
    made.__setstate__((items, phase))
    return made


def _advanced_rest(predicate: Any, iterator: Any) -> Any:
    made: Any = itertools.dropwhile(predicate, _asked(iterator))
    made.__setstate__(1)
    return made


def _advanced_longest(waiting: Any, fillvalue: Any) -> Any:
    left = [() if one is None else _asked(one) for one in waiting]
    return itertools.zip_longest(*left, fillvalue=fillvalue)


def _advanced_index(owner: Any, index: int) -> Any:
    made: Any = iter(owner)
    made.__setstate__(index + 1)
    return made


def _advanced_choice(make: Callable[..., Any]) -> Callable[[Any, int, Any], Any]:
    def advanced(pool: Any, length: int, places: Any) -> Any:
        made = make(pool, length)
        made.__setstate__(places)
        return made

    return advanced


def _advanced_product(pools: Any, places: Any) -> Any:
    made: Any = itertools.product(*pools)
    made.__setstate__(tuple(places))
    return made


def _advanced_permutations(pool: Any, length: int, places: Any) -> Any:
    made: Any = itertools.permutations(pool, length)
    free = [index for index in range(len(pool)) if index not in places]
    # For each place, how many are to come there before those behind it begin anew.
    turns = [sum(one > here for one in (*places[at:], *free)) + 1 for at, here in enumerate(places)]
    made.__setstate__(((*places, *free), tuple(turns)))
    return made


# The code of a generator → what makes a real object that stands where the generator was left, out
# of variables of its frame.
HALF_RUN: dict[CodeType, Any] = _codes(
    {
        _mapped: lambda function, iterators: map(function, *map(_asked, iterators)),
        _filtered: CONSTRUCTORS[_filtered.__code__],
        _enumerated: lambda iterator, start: enumerate(_asked(iterator), start + 1),
        _zipped: lambda iterators: zip(*map(_asked, iterators)),  # noqa: B905
        _zipped_strictly: lambda iterators: zip(*map(_asked, iterators), strict=True),
        iter_until: lambda function, sentinel: iter(function, sentinel),
        by_index: _advanced_index,
        chain: _advanced_chain,
        _chained: _advanced_chain_from,
        _sliced: _advanced_slice,
        _accumulated: _advanced_sums,
        _paired: lambda item, iterator: itertools.pairwise(
            itertools.chain((item,), _asked(iterator))
        ),
        _cycled: _advanced_cycle,
        _starred: CONSTRUCTORS[_starred.__code__],
        _taken: CONSTRUCTORS[_taken.__code__],
        _dropped: _advanced_rest,
        _refused: CONSTRUCTORS[_refused.__code__],
        _selected: CONSTRUCTORS[_selected.__code__],
        _zipped_longest: _advanced_longest,
        _multiplied: _advanced_product,
        _permuted: _advanced_permutations,
        _combined: _advanced_choice(itertools.combinations),
        _combined_again: _advanced_choice(itertools.combinations_with_replacement),
    }
)


@functools.cache
def variables_of_half_run(code: CodeType) -> frozenset[str]:
    """The variables of which a real iterator is made where the generator is half-run."""
    make = HALF_RUN.get(code)
    names = inspect.getfullargspec(make).args if make is not None else ()
    return frozenset(names) - {"stack", "phase"}


# Class → what makes an object of it with nothing left.
FINISHED: dict[type, Callable[[], Any]] = {
    map: lambda: map(None, ()),  # type: ignore[call-overload]
    filter: lambda: filter(None, ()),
    enumerate: lambda: enumerate(()),
    zip: lambda: zip(),
    _UNTIL: lambda: iter(int, 0),
    _BY_INDEX: lambda: iter(_Left(())),
    itertools.chain: itertools.chain,
    itertools.islice: lambda: itertools.islice((), 0),
    itertools.accumulate: lambda: itertools.accumulate(()),
    itertools.pairwise: lambda: itertools.pairwise(()),
    itertools.cycle: lambda: itertools.cycle(()),
    itertools.starmap: lambda: itertools.starmap(bool, ()),
    itertools.takewhile: lambda: itertools.takewhile(bool, ()),
    itertools.dropwhile: lambda: itertools.dropwhile(bool, ()),
    itertools.filterfalse: lambda: itertools.filterfalse(None, ()),
    itertools.compress: lambda: itertools.compress((), ()),
    itertools.zip_longest: lambda: itertools.zip_longest(()),
    _TEE: lambda: itertools.tee(())[0],
    itertools.groupby: lambda: itertools.groupby(()),
    _GROUP: lambda: iter(()),
    itertools.product: lambda: itertools.product(()),
    itertools.permutations: lambda: itertools.permutations((), 1),
    itertools.combinations: lambda: itertools.combinations((), 1),
    itertools.combinations_with_replacement: lambda: itertools.combinations_with_replacement((), 1),
}

# Class → what makes an object of it that gives the items of a generator, just as they are.
AGAIN: dict[type, Callable[[Any], Any]] = {_TEE: lambda left: itertools.tee(left, 1)[0]}
