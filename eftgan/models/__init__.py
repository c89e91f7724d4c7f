"""Plain networks that know nothing of adapters: `gans` and `classifiers`."""
