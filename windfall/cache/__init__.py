"""What was compiled once is found again by the next process: keys, and a store on disk."""

from windfall.cache.cache import Cache, cache_for
from windfall.cache.directory import UnsafeDirectory, private_directory
from windfall.cache.key import Unkeyed, check_names, key_of
from windfall.cache.store import DiskStore, StoredEntry, StoreError

__all__ = [
    "Cache",
    "DiskStore",
    "StoreError",
    "StoredEntry",
    "Unkeyed",
    "UnsafeDirectory",
    "cache_for",
    "check_names",
    "key_of",
    "private_directory",
]
