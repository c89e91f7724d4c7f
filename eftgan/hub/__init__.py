"""Runs on the Hugging Face Hub: what of a run is shared, its model card, and the way there and back. Needs no torch."""
