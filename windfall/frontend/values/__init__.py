"""The kinds of symbolic Python objects; `base.py` first, then `wrap.py`."""
