"""What was compiled once is found again by the next process: keys, and a store on disk."""

from windfall.cache.bundle import Bundle, export, load
from windfall.cache.cache import Cache, cache_for
from windfall.cache.directory import UnsafeDirectory, private_directory
from windfall.cache.key import Unkeyed, check_names, key_of
from windfall.cache.store import DiskStore, StoredEntry, StoreError

__all__ = [
    "Bundle",
    "Cache",
    "DiskStore",
    "StoreError",
    "StoredEntry",
    "Unkeyed",
    "UnsafeDirectory",
    "cache_for",
    "check_names",
    "export",
    "key_of",
    "load",
    "private_directory",
]
