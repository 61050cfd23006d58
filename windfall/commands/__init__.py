"""The command line. See README.md of this room."""

from windfall.commands.command import main

__all__ = ["main"]
