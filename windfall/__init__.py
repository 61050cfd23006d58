"""windfall: an independent compiler for PyTorch programs."""
