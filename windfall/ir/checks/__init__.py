"""Every kind of check, one class each. `base.py` says what a check is: read it first."""
