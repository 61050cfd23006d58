"""Speed of windfall against eager and torch.compile. See README.md."""
