"""Generators trained on one collection of images after another."""
