"""Steps of a check that walk and compare Python objects."""

from __future__ import annotations

from windfall.llvm import FALSE, NULL, TRUE, ZERO, Fields, Struct, Value, integer
from windfall.runtime.machine.basics import AGAIN, HOLDS, MISS, MachineCode, function, step
from windfall.runtime.machine.offsets import DICT_FLAG, LIST_FLAG, TUPLE_FLAG, TYPE_FLAG

# Rows of records: what a class is to find under a name, and what is read from a dictionary.
FOUND_ROW = Struct("name* wanted*")
READ_ROW = Struct("key* cell* present")


def _flags(code: MachineCode, object: Value) -> Value:
    return code.field(code.type_of(object), code.objects.type_flags)


def _has(code: MachineCode, flags: Value, flag: int) -> Value:
    return code.different(code.binary("and", flags, flag), 0)


@step("")
def end(code: MachineCode, record: Fields) -> None:
    """All steps held."""
    code.ret(HOLDS)


@step("object* class*")
def type_(code: MachineCode, record: Fields) -> None:
    """The exact class."""
    code.check(code.equal(code.type_of(code.value(record)), record["class"]))


@step("object* wanted*")
def is_(code: MachineCode, record: Fields) -> None:
    """This very object."""
    code.check(code.equal(code.value(record), record["wanted"]))


@step("object* other* same")
def same(code: MachineCode, record: Fields) -> None:
    """Whether two values are one object."""
    alike = code.equal(code.value(record), code.value(record, "other"))
    code.check(code.equal(code.outcome(alike), record["same"]))


@step("object* class* offset wanted")
def word(code: MachineCode, record: Fields) -> None:
    """A word inside of an object of this class."""
    object = code.value(record)
    code.check(code.equal(code.type_of(object), record["class"]))
    code.check(code.equal(code.field(object, record["offset"]), record["wanted"]))


@step("object* constant* bytes")
def int_(code: MachineCode, record: Fields) -> None:
    """An exact int: its sign and number of digits, then its digits."""
    object, constant = code.value(record), record["constant"]
    tag = code.objects.int_tag
    code.check(code.equal(code.type_of(object), code.assembly.outside("PyLong_Type")))
    code.check(code.equal(code.field(object, tag), code.field(constant, tag)))
    ours, theirs = code.offset(constant, tag + 8), code.offset(object, tag + 8)
    code.check(code.equal(code.call("memcmp", "i32", ours, theirs, record["bytes"]), 0))


@function("i1", "ptr", "ptr")
def same_text(code: MachineCode, object: Value, constant: Value) -> None:
    """Whether an object is this text, exactly a str."""
    code.require(code.different(object, constant), TRUE)
    code.require(code.equal(code.type_of(object), code.assembly.outside("PyUnicode_Type")), FALSE)
    code.ret(code.equal(code.call("PyUnicode_Compare", "i32", object, constant), 0))


@function("i1", "ptr", "ptr")
def same_key(code: MachineCode, object: Value, constant: Value) -> None:
    """The same of a key, which is text or an integer of 64 bits."""
    code.require(code.different(object, constant), TRUE)
    kind = code.type_of(object)
    code.require(code.equal(kind, code.type_of(constant)), FALSE)
    with code.when(code.different(kind, code.assembly.outside("PyLong_Type"))):
        code.ret(same_text(code, object, constant))
    (have, fits), (wanted, _) = code.integer_of(object), code.integer_of(constant)
    code.ret(code.both(fits, code.equal(have, wanted)))


@step("object* constant*")
def string(code: MachineCode, record: Fields) -> None:
    """An exact str."""
    code.check(same_text(code, code.value(record), record["constant"]))


def _check_found(code: MachineCode, object: Value, row: Fields) -> None:
    found = code.call("_PyType_Lookup", "ptr", object, row["name"])
    code.check(code.equal(found, row["wanted"]))


@step("object* ...")
def resolves(code: MachineCode, record: Fields) -> None:
    """What a class finds along its MRO."""
    object = code.value(record)
    code.check(_has(code, _flags(code, object), TYPE_FLAG))
    _check_found(code, object, Fields(code, FOUND_ROW, record.end))


@step("object* count ...")
def answers(code: MachineCode, record: Fields) -> None:
    """The same of several names."""
    object = code.value(record)
    code.check(_has(code, _flags(code, object), TYPE_FLAG))
    with code.each(record.end, record["count"], FOUND_ROW) as (_, row):
        _check_found(code, object, row)


@step("object* cell*")
def type_of(code: MachineCode, record: Fields) -> None:
    """Walk to the class."""
    code.store(code.type_of(code.value(record)), record["cell"])


@step("object* cell* class* offset default*")
def load(code: MachineCode, record: Fields) -> None:
    """Walk to what a word of an object of this class points to; null stands for the default."""
    object = code.value(record)
    code.check(code.equal(code.type_of(object), record["class"]))
    found = code.field(object, record["offset"], "ptr")
    value = code.select(code.is_null(found), record["default"], found)
    code.store(value, record["cell"])
    code.check(code.different(value, NULL))


# --------------------------------------------------------------------------------- dictionaries


def _dictionary(code: MachineCode, object: Value) -> Value:
    """The dictionary of an object; null where it has none, or has not made it yet."""
    objects = code.objects
    kind = code.type_of(object)
    flags = code.field(kind, objects.type_flags)
    managed = _has(code, flags, objects.managed_dict_flag)
    is_class = _has(code, flags, TYPE_FLAG)
    inside = code.field(kind, objects.type_dict_offset)
    # Behind a part whose length varies, as in subclasses of int and tuple.
    backward = code.compare("icmp slt", inside, 0)
    far = code.both(backward, code.binary("xor", managed, TRUE))

    def far_away() -> Value:
        return code.load("ptr", code.call("_PyObject_GetDictPtr", "ptr", object))

    def near() -> Value:
        of_class = code.select(is_class, integer(objects.type_dict), inside)
        offset = code.select(managed, integer(objects.managed_dict), of_class)
        known = code.binary("or", managed, code.compare("icmp sgt", offset, 0))
        # Where there is none, its type pointer is read instead: no branch, and no dictionary.
        place = code.select(known, offset, integer(objects.type))
        found = code.field(object, place, "ptr")
        if objects.managed_dict_tag:
            # Where no dictionary was made yet, a tagged pointer to the attributes may stand here.
            tag = code.binary(
                "and", code.convert("ptrtoint", found, "i64"), objects.managed_dict_tag
            )
            found = code.select(code.equal(tag, 0), found, NULL)
        answer = code.select(known, found, NULL)
        if objects.static_type_dict:
            return answer
        return code.either(code.both(code.is_null(answer), is_class), ask, answer)

    def ask() -> Value:
        # A class that is written in C has its dictionary elsewhere: it lives as long as the class.
        owned = code.call("PyType_GetDict", "ptr", object)
        code.drop(owned)
        return owned

    return code.either(far, far_away, near)


@function("ptr", "ptr")
def dictionary(code: MachineCode, object: Value) -> None:
    """The same, where it is not worth being written out."""
    code.ret(_dictionary(code, object))


@function("i32", "ptr")
def make_dictionary(code: MachineCode, object: Value) -> None:
    """Make the dictionary of an object that has none yet. That allocates, which may collect
    garbage, so all is read again after it. Or it cannot have one: a miss."""
    code.check(code.equal(code.binary("and", _flags(code, object), TYPE_FLAG), 0))
    made = code.call("PyObject_GenericGetDict", "ptr", object, NULL)
    with code.when(code.is_null(made)):
        code.call("PyErr_Clear", "void")
        code.ret(MISS)
    same = code.equal(dictionary(code, object), made)
    code.drop(made)
    code.ret(code.select(same, AGAIN, MISS))


@step("object* cell*")
def dict_of(code: MachineCode, record: Fields) -> None:
    """Walk to the dictionary."""
    object = code.value(record)
    found = dictionary(code, object)
    code.store(found, record["cell"])
    with code.when(code.is_null(found)):
        code.ret(make_dictionary(code, object))


READ = "object* version count ..."


def _version(code: MachineCode, dictionary: Value, record: Fields) -> tuple[Value, Value]:
    """The version of a dictionary, and whether it is another one than the record knows."""
    offset = code.facts.dict_version
    if offset is None:
        return ZERO, TRUE
    version = code.field(dictionary, offset)
    return version, code.different(version, record["version"])


def _read(code: MachineCode, record: Fields, dictionary: Value) -> None:
    """Read names from a dictionary, if it is one; as long as its version stands, they are read."""
    code.check(_has(code, _flags(code, dictionary), DICT_FLAG))
    version, moved = _version(code, dictionary, record)
    with code.when(moved):
        code.check(look_up(code, record.base, dictionary, version))


@function("i1", "ptr", "ptr", "i64")
def look_up(code: MachineCode, record: Value, dictionary: Value, version: Value) -> None:
    """The names that are read from a dictionary whose version moved."""
    fields = Fields(code, STEP_READ, record)
    # Until all are found, the cells are those of no dictionary.
    fields["version"] = ZERO
    with code.each(fields.end, fields["count"], READ_ROW) as (_, row):
        found = code.call("PyDict_GetItemWithError", "ptr", dictionary, row["key"])
        seen = code.outcome(code.different(found, NULL))
        with code.when(code.different(seen, row["present"])):
            code.call("PyErr_Clear", "void")
            code.ret(FALSE)
        code.store(found, row["cell"])
    fields["version"] = version
    code.ret(TRUE)


@step(READ)
def dict_read(code: MachineCode, record: Fields) -> None:
    """Read names from a dictionary."""
    _read(code, record, code.value(record))


STEP_READ = dict_read.struct


@step(READ)
def attributes(code: MachineCode, record: Fields) -> None:
    """Read names from the dictionary of an object."""
    owner = code.value(record)
    found = _dictionary(code, owner)
    with code.when(code.is_null(found)):
        code.ret(make_dictionary(code, owner))
    _read(code, record, found)


@step("object* version count class* ...")
def keys(code: MachineCode, record: Fields) -> None:
    """All keys of a dict of this exact class, in order."""
    object, wanted = code.value(record), record.end
    code.check(code.equal(code.type_of(object), record["class"]))
    version, moved = _version(code, object, record)
    with code.when(moved):
        position, key, item = (code.reserve(type) for type in ("i64", "ptr", "ptr"))
        count = record["count"]
        code.check(code.equal(code.field(object, code.objects.size), count))
        code.store(ZERO, position)
        with code.repeat(ZERO, count) as loop:
            some = code.call("PyDict_Next", "i32", object, position, key, item)
            code.check(code.different(some, 0))
            have = code.load("ptr", key)
            code.check(same_key(code, have, code.word(wanted, loop.index, "ptr")))
        record["version"] = version


@step("object* version count ...")
def items(code: MachineCode, record: Fields) -> None:
    """Under names, a dictionary holds these very objects: asked again when its version moved."""
    object = code.value(record)
    code.check(_has(code, _flags(code, object), DICT_FLAG))
    version, moved = _version(code, object, record)
    with code.when(moved):
        with code.each(record.end, record["count"], FOUND_ROW) as (_, row):
            found = code.call("PyDict_GetItemWithError", "ptr", object, row["name"])
            with code.when(code.is_null(found)):
                code.call("PyErr_Clear", "void")
                code.ret(MISS)
            code.check(code.equal(found, row["wanted"]))
        record["version"] = version


@step("object* key* present")
def has_key(code: MachineCode, record: Fields) -> None:
    """Whether a dict has a key."""
    object = code.value(record)
    code.check(_has(code, _flags(code, object), DICT_FLAG))
    found = code.call("PyDict_GetItemWithError", "ptr", object, record["key"])
    present = code.different(found, NULL)
    with code.when(code.is_null(found)):
        code.call("PyErr_Clear", "void")
    code.check(code.equal(code.outcome(present), record["present"]))


@step("object* cell* index key*")
def item(code: MachineCode, record: Fields) -> None:
    """Walk to an item of a list, tuple or dict, past any `__getitem__` of a subclass."""
    object = code.value(record)
    objects = code.objects
    flags = _flags(code, object)

    def of_sequence() -> Value:
        items = code.either(
            _has(code, flags, TUPLE_FLAG),
            lambda: code.offset(object, objects.tuple_items),
            lambda: code.field(object, objects.list_items, "ptr"),
        )
        size, wanted = code.field(object, objects.size), record["index"]
        backward = code.compare("icmp slt", wanted, 0)
        index = code.select(backward, code.binary("add", wanted, size), wanted)
        code.check(code.compare("icmp ult", index, size))
        return code.word(items, index, "ptr")

    def of_dict() -> Value:
        code.check(_has(code, flags, DICT_FLAG))
        found = code.call("PyDict_GetItemWithError", "ptr", object, record["key"])
        with code.when(code.is_null(found)):
            code.call("PyErr_Clear", "void")
            code.ret(MISS)
        return found

    sequence = _has(code, flags, TUPLE_FLAG | LIST_FLAG)
    code.store(code.either(sequence, of_sequence, of_dict), record["cell"])


@step("object* key* hash present")
def has_object(code: MachineCode, record: Fields) -> None:
    """Whether a dict has a key that is hashed by its identity."""
    object = code.value(record)
    code.check(_has(code, _flags(code, object), DICT_FLAG))
    known = (object, record["key"], record["hash"])
    found = code.call("_PyDict_GetItem_KnownHash", "ptr", *known)
    present = code.different(found, NULL)
    with code.when(code.is_null(found)):
        code.call("PyErr_Clear", "void")
    code.check(code.equal(code.outcome(present), record["present"]))


@step("object* cell* key* hash")
def item_of_object(code: MachineCode, record: Fields) -> None:
    """Walk to an item of a dict whose key is hashed by its identity. The hash is known: asking a
    tensor for it would run Python, which may collect what the cells point to."""
    object = code.value(record)
    code.check(_has(code, _flags(code, object), DICT_FLAG))
    known = (object, record["key"], record["hash"])
    found = code.call("_PyDict_GetItem_KnownHash", "ptr", *known)
    with code.when(code.is_null(found)):
        code.call("PyErr_Clear", "void")
        code.ret(MISS)
    code.store(found, record["cell"])


@step("object* cell* class* name*")
def gradient(code: MachineCode, record: Fields) -> None:
    """Walk to the gradient of a tensor of this class. torch answers a reference to an object that
    the tensor keeps from then on, so that it may be given back at once."""
    object = code.value(record)
    code.check(code.equal(code.type_of(object), record["class"]))
    found = code.call("PyObject_GetAttr", "ptr", object, record["name"])
    with code.when(code.is_null(found)):
        code.call("PyErr_Clear", "void")
        code.ret(MISS)
    code.store(found, record["cell"])
    code.drop(found)
