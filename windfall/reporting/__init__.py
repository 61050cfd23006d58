"""See README.md of this room."""
