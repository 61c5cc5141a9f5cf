"""Frozen values and closed sets that all rooms share. No input or output, no torch."""
