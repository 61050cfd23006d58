"""What was compiled once is found again by the next process: keys, and a store on disk."""

from windfall.cache.bundle import Bundle, export, load
from windfall.cache.cache import Cache, cache_for
from windfall.cache.directory import UnsafeDirectory, private_directory
from windfall.cache.fingerprint import Fingerprints, is_constant
from windfall.cache.key import (
    OPERATOR_TAGS,
    OWN_LIBRARIES,
    Unkeyed,
    check_names,
    entry_key,
    key_of,
    text_key,
)
from windfall.cache.remote import RemoteStore, remote_for
from windfall.cache.store import DiskStore, StoredEntry, StoreError
from windfall.cache.ways import Changed, Found, walk, ways_of

__all__ = [
    "OPERATOR_TAGS",
    "OWN_LIBRARIES",
    "Bundle",
    "Cache",
    "Changed",
    "DiskStore",
    "Fingerprints",
    "Found",
    "RemoteStore",
    "StoreError",
    "StoredEntry",
    "Unkeyed",
    "UnsafeDirectory",
    "cache_for",
    "check_names",
    "entry_key",
    "export",
    "is_constant",
    "key_of",
    "load",
    "private_directory",
    "remote_for",
    "text_key",
    "walk",
    "ways_of",
]
