"""Classifiers trained on one set of classes after another."""
