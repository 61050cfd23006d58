"""Which windfall this is: the one place, read by the build, by reports and by the cache's users."""

VERSION = "0.1.0.dev0"
