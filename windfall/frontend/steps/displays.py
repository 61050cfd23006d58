"""Native forms of what makes, fills and unpacks containers and texts.

Enters: the instruction and the names on the stack. Leaves: lines that do it. Invariant: a row does
exactly what CPython does for that instruction.
"""

from __future__ import annotations

from typing import Any

from windfall.frontend.bytecode import VERSION, Instruction
from windfall.frontend.classnames import full_name
from windfall.frontend.steps.writer import StepWriter, native
from windfall.frontend.values.class_value import find


@native("BUILD_SET")
def _build_set(writer: StepWriter, instruction: Instruction) -> None:
    items = writer.take(instruction.argument)
    writer.result("{" + ", ".join(items) + "}" if items else "set()")


@native("BUILD_MAP")
def _build_map(writer: StepWriter, instruction: Instruction) -> None:
    items = writer.take(2 * instruction.argument)
    pairs = zip(items[::2], items[1::2], strict=True)
    writer.result("{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}")


@native("BUILD_CONST_KEY_MAP")
def _build_const_key_map(writer: StepWriter, instruction: Instruction) -> None:
    keys = writer.pop()
    items = writer.take(instruction.argument)
    writer.result(f"dict(zip({keys}, ({', '.join(items)},)))")


@native("BUILD_STRING")
def _build_string(writer: StepWriter, instruction: Instruction) -> None:
    items = writer.take(instruction.argument)
    writer.result(f"''.join(({', '.join(items)},))")


@native("FORMAT_VALUE")
def _format_value(writer: StepWriter, instruction: Instruction) -> None:
    flags = instruction.argument
    specification = writer.pop() if flags & 4 else "''"
    value = writer.pop()
    convert = {0: "", 1: "str", 2: "repr", 3: "ascii"}[flags & 3]
    writer.result(f"format({convert}({value}), {specification})")


@native("CONVERT_VALUE")
def _convert_value(writer: StepWriter, instruction: Instruction) -> None:
    convert = {1: "str", 2: "repr", 3: "ascii"}[instruction.argument]
    writer.result(f"{convert}({writer.pop()})")


_CALLED = {
    "FORMAT_SIMPLE": "format({}, '')",
    "FORMAT_WITH_SPEC": "format({}, {})",
    "GET_ITER": "iter({})",
    "LIST_TO_TUPLE": "tuple({})",
}


@native(*_CALLED)
def _call(writer: StepWriter, instruction: Instruction) -> None:
    template = _CALLED[instruction.name]
    writer.result(template.format(*writer.take(template.count("{}"))))


_FILLED = {
    "LIST_APPEND": "{}.append({})",
    "SET_ADD": "{}.add({})",
    "LIST_EXTEND": "{}.extend([*{}])",
    "SET_UPDATE": "{}.update({})",
    "DICT_UPDATE": "{}.update({{**{}}})",  # mappings only: the method would take pairs too
}


@native(*_FILLED)
def _fill(writer: StepWriter, instruction: Instruction) -> None:
    given = writer.pop()
    target = writer.stack[-instruction.argument]
    writer.line(_FILLED[instruction.name].format(target, given))


@native("MAP_ADD")
def _map_add(writer: StepWriter, instruction: Instruction) -> None:
    value, key = writer.pop(), writer.pop()
    writer.line(f"{writer.stack[-instruction.argument]}[{key}] = {value}")


@native("DICT_MERGE")
def _dict_merge(writer: StepWriter, instruction: Instruction) -> None:
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
    """Fill a dict. The answer is an error about a key, or `AttributeError` where there are no
    items, as CPython takes what is raised here, by whomever. A dict is read past methods of its
    class."""
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


@native("UNPACK_SEQUENCE")
def _unpack_sequence(writer: StepWriter, instruction: Instruction) -> None:
    value = writer.pop()
    names = [writer.fresh("r") for _ in range(instruction.argument)]
    target = ", ".join(names) + "," if names else "[]"
    writer.line(f"{target} = {value}")
    for name in reversed(names):
        writer.push(name)


@native("UNPACK_EX")
def _unpack_ex(writer: StepWriter, instruction: Instruction) -> None:
    value = writer.pop()
    before, after = instruction.argument & 0xFF, instruction.argument >> 8
    names = [writer.fresh("r") for _ in range(before + 1 + after)]
    shown = [f"*{name}" if index == before else name for index, name in enumerate(names)]
    writer.line(f"{', '.join(shown)}, = {value}")
    for name in reversed(names):
        writer.push(name)
