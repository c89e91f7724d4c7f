"""What the performance claims rest on: each figure is a ratio of two sides measured in turns, in one run."""
