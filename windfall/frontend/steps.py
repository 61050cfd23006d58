"""The one step that runs natively at a break, as Python source.

Enters: the instruction that could not be captured, and the names of the values on the stack.
Leaves: lines that do it on real values, the stack after it, and where the program may go next. One
row for each opcode that can break: `@native("NAME")`. Invariant: a row does exactly what CPython
does for that instruction.

    BINARY_OP +     v0 = x + y
"""

from __future__ import annotations

import functools
import keyword
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from windfall.errors import InternalError
from windfall.frontend.bytecode import VERSION, Instruction
from windfall.frontend.classnames import full_name
from windfall.frontend.opcodes.operators import SYMBOLS
from windfall.frontend.values.class_value import find
from windfall.ir.guard import ABSENT
from windfall.ir.reading import is_a, is_among, mro_of

NULL_NAME = "NULL"


@dataclass(slots=True)
class Writer:
    """The names on the stack of the innermost frame, and the lines so far."""

    stack: list[str]
    kw_names: tuple[str, ...]
    fresh: Callable[[str], str]
    known: Callable[[Any, str], str]
    variables: dict[int, str]  # names of variables that are bound
    globals: str
    handled: str | None
    free: tuple[int, ...] = ()  # variables that belong to an enclosing function
    lowest: int = 0  # how far down the stack was taken from
    lines: list[str] = field(default_factory=list)
    raises: bool = False  # nothing comes after it
    # Where to go on: (condition, instruction, stack). The last has no condition.
    outcomes: list[tuple[str | None, int, list[str]]] = field(default_factory=list)

    def pop(self) -> str:
        """The top of the stack."""
        name = self.stack.pop()
        self.lowest = min(self.lowest, len(self.stack))
        return name

    def take(self, count: int) -> list[str]:
        """Several, in the order in which they were pushed."""
        start = len(self.stack) - count
        items = self.stack[start:]
        del self.stack[start:]
        self.lowest = min(self.lowest, start)
        return items

    def push(self, name: str) -> None:
        """Push a name."""
        self.stack.append(name)

    def result(self, text: str) -> str:
        """Evaluate, and push."""
        name = self.fresh("r")
        self.lines.append(f"{name} = {text}")
        self.stack.append(name)
        return name

    def line(self, text: str) -> None:
        """A statement."""
        self.lines.append(text)

    def goto(self, condition: str | None, target: int) -> None:
        """Go on at `target`, where the condition holds."""
        self.outcomes.append((condition, target, list(self.stack)))


Step = Callable[[Writer, Instruction], None]
NATIVE: dict[str, Step] = {}


def native(*names: str) -> Callable[[Step], Step]:
    """A row: how these instructions are done on real values, in any version that has them."""

    def register(step: Step) -> Step:
        for name in names:
            assert name not in NATIVE, f"{name} has two native forms"
            NATIVE[name] = step
        return step

    return register


def write_step(
    writer: Writer,
    instruction: Instruction,
    following: Sequence[Instruction] = (),
    begun: bool = False,
) -> None:
    """The lines and outcomes of one native instruction; of two where the first asks for a truth
    and the second jumps by it: both ways are told apart at once. `begun`: interpreted code has
    answered the first half of it, which lies on the stack; most are simply done again on that."""
    writer.lowest = len(writer.stack)
    if begun and instruction.name in _FINISH:
        _FINISH[instruction.name](writer, instruction)
        return
    if instruction.name == "TO_BOOL" and following[0].name in _TRUTH_JUMPS:
        instruction = following[0]
    step = NATIVE.get(instruction.name)
    if step is None:
        raise InternalError(f"{instruction.name} has no native form")
    step(writer, instruction)
    if not writer.outcomes and not writer.raises:
        writer.goto(None, instruction.index + 1)


# ---------------------------------------------------------------------------------------- calls


@native("CALL")
def _call(writer: Writer, instruction: Instruction) -> None:
    _call_named(writer, instruction.argument, writer.kw_names)


@native("CALL_KW")
def _call_kw(writer: Writer, instruction: Instruction) -> None:
    writer.pop()
    _call_named(writer, instruction.argument, instruction.value)


def _call_named(writer: Writer, count: int, names: tuple[str, ...]) -> None:
    given = writer.take(count)
    function, arguments = _callee(writer)
    function = _named(writer, function)
    arguments += given
    split = len(arguments) - len(names)
    shown = arguments[:split]
    shown += [f"{key}={value}" for key, value in zip(names, arguments[split:], strict=True)]
    writer.result(f"{function}({', '.join(shown)})")


def _callee(writer: Writer) -> tuple[str, list[str]]:
    """What is called: a NULL and it (from 3.13 on, it and a NULL), or it and its first argument."""
    upper, lower = writer.pop(), writer.pop()
    if lower == NULL_NAME:
        return upper, []
    return (lower, []) if upper == NULL_NAME else (lower, [upper])


def _push_callable(writer: Writer, text: str) -> None:
    """What is called next, with its NULL."""
    if VERSION < (3, 13):
        writer.push(NULL_NAME)
    writer.result(text)
    if VERSION >= (3, 13):
        writer.push(NULL_NAME)


@native("CALL_FUNCTION_EX")
def _call_function_ex(writer: Writer, instruction: Instruction) -> None:
    keywords = f", **{writer.pop()}" if instruction.argument & 1 else ""
    arguments = writer.pop()
    function = _named(writer, _callee(writer)[0])
    writer.result(f"{function}(*{arguments}{keywords})")


@native("LOAD_ATTR")
def _load_attr(writer: Writer, instruction: Instruction) -> None:
    writer.result(f"{_operand(writer.pop())}.{instruction.value}")


@native("LOAD_METHOD")
def _load_method(writer: Writer, instruction: Instruction) -> None:
    _push_callable(writer, f"{_operand(writer.pop())}.{instruction.value}")


@native("LOAD_SUPER_ATTR")
def _load_super_attr(writer: Writer, instruction: Instruction) -> None:
    function, *given = writer.take(3)
    if not instruction.argument & 2:  # the builtin finds them by itself, in the user's frame
        find = writer.known(_super, "super_without_arguments")
        made = f"{find}({function}, {', '.join(given)})"
    else:
        made = f"{function}({', '.join(given)})"
    push = _push_callable if instruction.argument & 1 else Writer.result
    push(writer, f"{made}.{instruction.value}")


def _super(function: Any, cls: Any, owner: Any) -> Any:
    """`super()`, whatever `super` is."""
    return super(cls, owner) if function is super else function()


@native("STORE_ATTR")
def _store_attr(writer: Writer, instruction: Instruction) -> None:
    owner, value = writer.pop(), writer.pop()
    writer.line(f"{_operand(owner)}.{instruction.value} = {value}")


@native("DELETE_ATTR")
def _delete_attr(writer: Writer, instruction: Instruction) -> None:
    writer.line(f"del {_operand(writer.pop())}.{instruction.value}")


def _operand(text: str) -> str:
    return text if text.isidentifier() else f"({text})"


def _named(writer: Writer, text: str) -> str:
    """The operand under a name: where a literal is called, subscripted or compared by identity,
    Python's compiler warns, and the warning would reach the user."""
    if text.isidentifier() and not keyword.iskeyword(text):  # None is one
        return text
    name = writer.fresh("r")
    writer.line(f"{name} = {text}")
    return name


# ------------------------------------------------------------------------------------- operators


@native("BINARY_OP")
def _binary_op(writer: Writer, instruction: Instruction) -> None:
    right, left = writer.pop(), writer.pop()
    symbol = SYMBOLS[instruction.argument]
    if symbol.endswith("="):
        name = writer.result(left)
        writer.line(f"{name} {symbol} {right}")
    else:
        writer.result(f"{_operand(left)} {symbol} {_operand(right)}")


@native("UNARY_POSITIVE", "UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_NOT")
def _unary(writer: Writer, instruction: Instruction) -> None:
    symbols = {"POSITIVE": "+", "NEGATIVE": "-", "INVERT": "~", "NOT": "not "}
    symbol = symbols[instruction.name.removeprefix("UNARY_")]
    writer.result(f"{symbol}{_operand(writer.pop())}")


@native("COMPARE_OP")
def _compare_op(writer: Writer, instruction: Instruction) -> None:
    right, left = writer.pop(), writer.pop()
    writer.result(f"{_operand(left)} {instruction.value} {_operand(right)}")


@native("IS_OP")
def _is_op(writer: Writer, instruction: Instruction) -> None:
    right, left = (_named(writer, one) for one in (writer.pop(), writer.pop()))
    writer.result(f"{left} is {'not ' if instruction.argument else ''}{right}")


@native("CONTAINS_OP")
def _contains_op(writer: Writer, instruction: Instruction) -> None:
    container, item = writer.pop(), writer.pop()
    writer.result(f"{item} {'not ' if instruction.argument else ''}in {container}")


@native("BINARY_SUBSCR")
def _binary_subscr(writer: Writer, instruction: Instruction) -> None:
    key, owner = writer.pop(), writer.pop()
    writer.result(f"{_named(writer, owner)}[{key}]")


@native("BINARY_SLICE")
def _binary_slice(writer: Writer, instruction: Instruction) -> None:
    owner, start, end = writer.take(3)
    writer.result(f"{_named(writer, owner)}[{start}:{end}]")


@native("STORE_SLICE")
def _store_slice(writer: Writer, instruction: Instruction) -> None:
    value, owner, start, end = writer.take(4)
    writer.line(f"{_operand(owner)}[{start}:{end}] = {value}")


@native("STORE_SUBSCR")
def _store_subscr(writer: Writer, instruction: Instruction) -> None:
    key, owner, value = writer.pop(), writer.pop(), writer.pop()
    writer.line(f"{_operand(owner)}[{key}] = {value}")


@native("DELETE_SUBSCR")
def _delete_subscr(writer: Writer, instruction: Instruction) -> None:
    key, owner = writer.pop(), writer.pop()
    writer.line(f"del {_operand(owner)}[{key}]")


@native("POP_TOP")
def _pop_top(writer: Writer, instruction: Instruction) -> None:
    """What has no slot any more is dropped when the segment returns."""
    writer.pop()
    writer.line("pass")


@native("GET_LEN")
def _get_len(writer: Writer, instruction: Instruction) -> None:
    writer.result(f"len({writer.stack[-1]})")


# --------------------------------------------------------------------------------------- control


@native("TO_BOOL")
def _to_bool(writer: Writer, instruction: Instruction) -> None:
    writer.push(_truth(writer, writer.pop()))


_TRUTH_JUMPS = frozenset({"POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"})


@native(
    "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_FORWARD_IF_FALSE",
    "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE",
)  # fmt: skip
def _pop_jump_if(writer: Writer, instruction: Instruction) -> None:
    name = _truth(writer, writer.pop())
    wanted = name if instruction.name.endswith("TRUE") else f"not {name}"
    writer.goto(wanted, instruction.target)
    writer.goto(None, instruction.index + 1)


def _truth(writer: Writer, value: str) -> str:
    """The truth is asked for here, where what it raises is caught."""
    name = writer.fresh("r")
    writer.line(f"{name} = True if {value} else False")
    return name


@native("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def _jump_if_or_pop(writer: Writer, instruction: Instruction) -> None:
    name = _truth(writer, writer.stack[-1])
    wanted = name if "TRUE" in instruction.name else f"not {name}"
    writer.goto(wanted, instruction.target)
    writer.pop()
    writer.goto(None, instruction.index + 1)


@native("GET_ITER")
def _get_iter(writer: Writer, instruction: Instruction) -> None:
    writer.result(f"iter({writer.pop()})")


@native("FOR_ITER")
def _for_iter(writer: Writer, instruction: Instruction) -> None:
    """END tells exhaustion from an item; no iterator of the user can give it."""
    from windfall.frontend.values.iterator import END

    iterator = writer.stack[-1]
    end = writer.known(END, "END")
    name = writer.result(f"next({iterator}, {end})")
    writer.pop()
    writer.pop()
    writer.goto(f"{name} is {end}", instruction.target)
    writer.push(iterator)
    writer.push(name)
    writer.goto(None, instruction.index + 1)


def _finish_for_iter(writer: Writer, instruction: Instruction) -> None:
    """The item is on the stack, or END."""
    from windfall.frontend.values.iterator import END

    item, iterator = writer.pop(), writer.pop()
    writer.line("pass")
    writer.goto(f"{item} is {writer.known(END, 'END')}", instruction.target)
    writer.push(iterator)
    writer.push(item)
    writer.goto(None, instruction.index + 1)


def _finish_contains(writer: Writer, instruction: Instruction) -> None:
    """Only `not in` waits for an answer."""
    writer.result(f"not {writer.pop()}")
    writer.goto(None, instruction.index + 1)


def _finish_jump_or_pop(writer: Writer, instruction: Instruction) -> None:
    """The truth of what is below it."""
    name = _truth(writer, writer.pop())
    writer.goto(name if "TRUE" in instruction.name else f"not {name}", instruction.target)
    writer.pop()
    writer.goto(None, instruction.index + 1)


_FINISH: dict[str, Step] = {
    "FOR_ITER": _finish_for_iter,
    "CONTAINS_OP": _finish_contains,
    "JUMP_IF_TRUE_OR_POP": _finish_jump_or_pop,
    "JUMP_IF_FALSE_OR_POP": _finish_jump_or_pop,
}


# ---------------------------------------------------------------------------------------- build


@native("BUILD_SET")
def _build_set(writer: Writer, instruction: Instruction) -> None:
    items = writer.take(instruction.argument)
    writer.result("{" + ", ".join(items) + "}" if items else "set()")


@native("BUILD_MAP")
def _build_map(writer: Writer, instruction: Instruction) -> None:
    items = writer.take(2 * instruction.argument)
    pairs = zip(items[::2], items[1::2], strict=True)
    writer.result("{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}")


@native("BUILD_CONST_KEY_MAP")
def _build_const_key_map(writer: Writer, instruction: Instruction) -> None:
    keys = writer.pop()
    items = writer.take(instruction.argument)
    writer.result(f"dict(zip({keys}, ({', '.join(items)},)))")


@native("BUILD_STRING")
def _build_string(writer: Writer, instruction: Instruction) -> None:
    items = writer.take(instruction.argument)
    writer.result(f"''.join(({', '.join(items)},))")


@native("FORMAT_VALUE")
def _format_value(writer: Writer, instruction: Instruction) -> None:
    flags = instruction.argument
    specification = writer.pop() if flags & 4 else "''"
    value = writer.pop()
    convert = {0: "", 1: "str", 2: "repr", 3: "ascii"}[flags & 3]
    writer.result(f"format({convert}({value}), {specification})")


@native("CONVERT_VALUE")
def _convert_value(writer: Writer, instruction: Instruction) -> None:
    convert = {1: "str", 2: "repr", 3: "ascii"}[instruction.argument]
    writer.result(f"{convert}({writer.pop()})")


@native("FORMAT_SIMPLE")
def _format_simple(writer: Writer, instruction: Instruction) -> None:
    writer.result(f"format({writer.pop()}, '')")


@native("FORMAT_WITH_SPEC")
def _format_with_spec(writer: Writer, instruction: Instruction) -> None:
    specification, value = writer.pop(), writer.pop()
    writer.result(f"format({value}, {specification})")


@native("LIST_APPEND")
def _list_append(writer: Writer, instruction: Instruction) -> None:
    item = writer.pop()
    writer.line(f"{writer.stack[-instruction.argument]}.append({item})")


@native("SET_ADD")
def _set_add(writer: Writer, instruction: Instruction) -> None:
    item = writer.pop()
    writer.line(f"{writer.stack[-instruction.argument]}.add({item})")


@native("MAP_ADD")
def _map_add(writer: Writer, instruction: Instruction) -> None:
    value, key = writer.pop(), writer.pop()
    writer.line(f"{writer.stack[-instruction.argument]}[{key}] = {value}")


@native("LIST_EXTEND")
def _list_extend(writer: Writer, instruction: Instruction) -> None:
    items = writer.pop()
    writer.line(f"{writer.stack[-instruction.argument]}.extend([*{items}])")


@native("SET_UPDATE")
def _set_update(writer: Writer, instruction: Instruction) -> None:
    items = writer.pop()
    writer.line(f"{writer.stack[-instruction.argument]}.update({items})")


@native("DICT_UPDATE")
def _dict_update(writer: Writer, instruction: Instruction) -> None:
    """Mappings only: the method would take pairs too."""
    items = writer.pop()
    writer.line(f"{writer.stack[-instruction.argument]}.update({{**{items}}})")


@native("DICT_MERGE")
def _dict_merge(writer: Writer, instruction: Instruction) -> None:
    """What is wrong with keywords is told with the name of what is to be called, which lies below
    them: it, (from 3.13 on a NULL,) the positional arguments, the dict."""
    items = writer.pop()
    target = writer.stack[-instruction.argument]
    called = writer.stack[-instruction.argument - (2 if VERSION < (3, 13) else 3)]
    merge = writer.known(_merge, "merge_keywords")
    writer.line(f"{merge}({called}, {target}, {items})")


def _merge(called: Any, target: dict[Any, Any], items: Any) -> None:
    """`called(**target, **items)` up to the call, which tells of keys that are no strings."""
    wrong = _merged(target, items)
    if wrong is AttributeError:
        _Named(called)(**type(full_name(type(items)), (), {})())
    elif wrong is not None:
        _Named(called)(**{wrong.args[0]: 0}, **{wrong.args[0]: 0})


def _merged(target: dict[Any, Any], items: Any) -> Any:
    """Fill a dict. Answers an error about a key, or `AttributeError` where there are no items, as
    CPython takes what is raised here, by whomever. A dict is read past methods of its class."""
    kind = type(items)
    of_dict = issubclass(kind, dict) and find(kind, "__iter__") is find(dict, "__iter__")
    try:
        for key in dict.keys(items) if of_dict else _keys(items):
            if key in target:
                return KeyError(key)
            target[key] = dict.__getitem__(items, key) if of_dict else items[key]
    except AttributeError:
        return AttributeError
    except KeyError as error:
        if len(error.args) != 1 or VERSION < (3, 12):  # which takes its own alone
            raise
        return error
    return None


def _keys(items: Any) -> list[Any]:
    """All of them, before an item is asked for; told as CPython does."""
    found = items.keys()
    try:
        iterator = iter(found)
    except TypeError:
        iterator = None
    if iterator is None:
        text = f"{full_name(type(items))}.keys() returned a non-iterable (type "
        raise TypeError(f"{text}{full_name(type(found))})")
    return list(iterator)


class _Named:
    """Is called by the name of something else, and answers the keywords."""

    __slots__ = ("_called",)

    def __init__(self, called: Any) -> None:
        self._called = called

    def __getattribute__(self, name: str) -> Any:
        return getattr(_called_by(self), name)

    def __str__(self) -> str:
        return str(_called_by(self))

    def __call__(self, /, **keywords: Any) -> dict[str, Any]:
        return keywords


_called_by = vars(_Named)["_called"].__get__


@native("LIST_TO_TUPLE")
def _list_to_tuple(writer: Writer, instruction: Instruction) -> None:
    writer.result(f"tuple({writer.pop()})")


@native("UNPACK_SEQUENCE")
def _unpack_sequence(writer: Writer, instruction: Instruction) -> None:
    value = writer.pop()
    names = [writer.fresh("r") for _ in range(instruction.argument)]
    target = ", ".join(names) + "," if names else "[]"
    writer.line(f"{target} = {value}")
    for name in reversed(names):
        writer.push(name)


@native("UNPACK_EX")
def _unpack_ex(writer: Writer, instruction: Instruction) -> None:
    value = writer.pop()
    before, after = instruction.argument & 0xFF, instruction.argument >> 8
    names = [writer.fresh("r") for _ in range(before + 1 + after)]
    shown = [f"*{name}" if index == before else name for index, name in enumerate(names)]
    writer.line(f"{', '.join(shown)}, = {value}")
    for name in reversed(names):
        writer.push(name)


# -------------------------------------------------------------------- exceptions, with, imports


@native("RAISE_VARARGS")
def _raise_varargs(writer: Writer, instruction: Instruction) -> None:
    writer.raises = True
    if instruction.argument == 0:
        if writer.handled:
            _again(writer, writer.handled)
        else:
            writer.line("raise")
        return
    cause = f" from {writer.pop()}" if instruction.argument == 2 else ""
    writer.line(f"raise {writer.pop()}{cause}")


@native("RERAISE")
def _reraise(writer: Writer, instruction: Instruction) -> None:
    """The same exception goes on: this frame does not appear in its traceback once more."""
    writer.raises = True
    _again(writer, writer.pop())


def _again(writer: Writer, error: str) -> None:
    before = writer.fresh("r")
    writer.line(f"{before} = {error}.__traceback__")
    writer.line("try:")
    writer.line(f"    raise {error}")
    writer.line("except BaseException:")
    writer.line(f"    {error}.__traceback__ = {before}")
    writer.line("    raise")


@native("CHECK_EXC_MATCH")
def _check_exc_match(writer: Writer, instruction: Instruction) -> None:
    classes = writer.pop()
    function = writer.known(_is_caught, "is_caught")
    writer.result(f"{function}(type({writer.stack[-1]}), {classes})")


def _is_caught(kind: type, classes: Any) -> bool:
    """Whether `except classes` takes an exception: by the MRO, and classes of exceptions only."""
    # The items themselves: a subclass of tuple that iterates over others is not asked.
    wanted = tuple(tuple.__iter__(classes)) if is_a(classes, tuple) else (classes,)
    for one in wanted:
        if not issubclass(type(one), type) or not is_among(BaseException, mro_of(one)):
            text = "catching classes that do not inherit from BaseException is not allowed"
            raise TypeError(text)
    return any(is_among(one, mro_of(kind)) for one in wanted)


@native("BEFORE_WITH")
def _before_with(writer: Writer, instruction: Instruction) -> None:
    manager = writer.pop()
    enter, leave = writer.fresh("r"), writer.fresh("r")
    methods = writer.known(_context_methods, "context_methods")
    writer.line(f"{enter}, {leave} = {methods}({manager})")
    writer.push(leave)
    writer.result(f"{enter}()")


def _context_methods(manager: Any) -> tuple[Any, Any]:
    """`__enter__` and `__exit__` as `with` finds them: on the class."""
    kind = type(manager)
    enter, leave = find(kind, "__enter__"), find(kind, "__exit__")
    if enter is ABSENT or leave is ABSENT:
        with manager:  # says what is missing before it enters
            raise InternalError("a context manager without its methods was entered")
    return _bind(enter, manager), _bind(leave, manager)


def _bind(raw: Any, owner: Any) -> Any:
    """A special method as an instance binds it."""
    getter = find(type(raw), "__get__")
    return raw if getter is ABSENT else getter(raw, owner, type(owner))


@native("WITH_EXCEPT_START")
def _with_except_start(writer: Writer, instruction: Instruction) -> None:
    exception, leave = writer.stack[-1], writer.stack[-4]
    writer.result(f"{leave}(type({exception}), {exception}, {exception}.__traceback__)")


@native("IMPORT_NAME")
def _import_name(writer: Writer, instruction: Instruction) -> None:
    names, level = writer.pop(), writer.pop()
    space = writer.globals
    writer.result(f"__import__({instruction.value!r}, {space}, None, {names}, {level})")


@native("IMPORT_FROM")
def _import_from(writer: Writer, instruction: Instruction) -> None:
    name = instruction.value
    module = writer.stack[-1]
    writer.result(f"{writer.known(_imported, 'imported')}({module}, {name!r})")


def _imported(module: Any, name: str) -> Any:
    """`from module import name`."""
    import sys

    with suppress(AttributeError):  # and not in an `except`: eager's error has no context
        return getattr(module, name)
    full = f"{module.__name__}.{name}"
    if full in sys.modules:
        return sys.modules[full]
    where = getattr(module, "__file__", None) or "unknown location"
    text = f"cannot import name {name!r} from {module.__name__!r} ({where})"
    raise ImportError(text, name=module.__name__, path=where)


@native("LOAD_BUILD_CLASS")
def _load_build_class(writer: Writer, instruction: Instruction) -> None:
    writer.result("__build_class__")


@native("LOAD_GLOBAL")
def _load_global(writer: Writer, instruction: Instruction) -> None:
    """Only where the name is missing: it raises."""
    push = _push_callable if instruction.argument & 1 else Writer.result
    look = writer.known(_global, "read_global")
    push(writer, f"{look}({writer.globals}, {instruction.value!r})")


def _global(space: dict[str, Any], name: str) -> Any:
    """A global or builtin by name."""
    import builtins

    if name in space:
        return space[name]
    found = vars(builtins).get(name, NULL_NAME)
    if found is NULL_NAME:
        raise NameError(f"name {name!r} is not defined", name=name)
    return found


@native("DELETE_GLOBAL")
def _delete_global(writer: Writer, instruction: Instruction) -> None:
    look = writer.known(_global, "read_global")
    writer.line(f"{look}({writer.globals}, {instruction.value!r})")
    writer.line(f"del {writer.globals}[{instruction.value!r}]")


@native("LOAD_FAST", "LOAD_FAST_CHECK", "DELETE_FAST")
def _unbound_local(writer: Writer, instruction: Instruction) -> None:
    """Where the variable is unbound it raises. Deleting one that is bound is nothing: no way on has
    a slot for it."""
    name = instruction.value
    if instruction.name == "DELETE_FAST" and instruction.argument in writer.variables:
        del writer.variables[instruction.argument]
        writer.line("pass")
        return
    text = f"cannot access local variable {name!r} where it is not associated with a value"
    writer.raises = True
    writer.line(f"raise UnboundLocalError({text!r})")


@native("STORE_FAST")
def _store_fast(writer: Writer, instruction: Instruction) -> None:
    """What the variable held has no slot behind this."""
    writer.variables[instruction.argument] = writer.pop()
    writer.line("pass")


@native("LOAD_DEREF", "DELETE_DEREF")
def _load_deref(writer: Writer, instruction: Instruction) -> None:
    """A cell that may be empty."""
    cell = writer.variables[instruction.argument]
    own = instruction.argument not in writer.free
    look = writer.known(_own_cell_contents if own else _cell_contents, "read_cell")
    text = f"{look}({cell}, {instruction.value!r})"
    if instruction.name == "LOAD_DEREF":
        writer.result(text)
    else:
        writer.line(text)
        writer.line(f"del {cell}.cell_contents")


def _own_cell_contents(cell: Any, name: str) -> Any:
    """The same, of a variable of the frame itself."""
    with suppress(ValueError):  # and not in an `except`: eager's error has no context
        return cell.cell_contents
    text = f"cannot access local variable {name!r} where it is not associated with a value"
    raise UnboundLocalError(text)


def _cell_contents(cell: Any, name: str) -> Any:
    """What a cell holds, or the error that reading it raises."""
    with suppress(ValueError):
        return cell.cell_contents
    text = f"cannot access free variable {name!r} where it is not associated with a value"
    raise NameError(text + " in enclosing scope", name=name)


# ----------------------------------------------------------------------------------------- match


@native("MATCH_SEQUENCE", "MATCH_MAPPING")
def _match_kind(writer: Writer, instruction: Instruction) -> None:
    function = _is_sequence if instruction.name == "MATCH_SEQUENCE" else _is_mapping
    writer.result(f"{writer.known(function, function.__name__)}({writer.stack[-1]})")


def _is_sequence(subject: Any) -> bool:
    match subject:
        case [*_]:
            return True
    return False


def _is_mapping(subject: Any) -> bool:
    match subject:
        case {}:
            return True
    return False


@native("MATCH_KEYS")
def _match_keys(writer: Writer, instruction: Instruction) -> None:
    keys, subject = writer.stack[-1], writer.stack[-2]
    writer.result(f"{writer.known(_values_at, 'values_at')}({subject}, {keys})")


def _values_at(subject: Any, keys: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What a mapping pattern finds."""
    if not keys:
        return ()
    missing, get = object(), subject.get
    seen: set[Any] = set()
    found = []
    for key in keys:
        if key in seen:
            raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
        seen.add(key)
        value = get(key, missing)
        if value is missing:
            return None
        found.append(value)
    return tuple(found)


@native("MATCH_CLASS")
def _match_class(writer: Writer, instruction: Instruction) -> None:
    names, cls, subject = writer.pop(), writer.pop(), writer.pop()
    function = writer.known(_attributes_at, "attributes_at")
    writer.result(f"{function}({subject}, {cls}, {instruction.argument}, {names})")


def _attributes_at(subject: Any, cls: Any, count: int, names: tuple[str, ...]) -> Any:
    """What a class pattern finds."""
    return _class_pattern(count, names)(subject, cls)


@functools.cache
def _class_pattern(count: int, names: tuple[str, ...]) -> Callable[[Any, Any], Any]:
    """A `match` statement with one class pattern of so many positions and these keywords."""
    found = [f"found_{index}" for index in range(count + len(names))]
    named = [f"{name}={into}" for name, into in zip(names, found[count:], strict=True)]
    parts = ", ".join([*found[:count], *named])
    result = f"({', '.join(found)},)" if found else "()"
    space: dict[str, Any] = {}
    lines = ("def matched(subject, cls):", " match subject:", f"  case cls({parts}):")
    exec("\n".join((*lines, f"   return {result}", " return None")), space)
    made: Callable[[Any, Any], Any] = space["matched"]
    return made
