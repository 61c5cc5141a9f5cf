"""hangdrill proves, before an outage does, that a hung PyTorch job leaves the evidence that names the culprit."""

__version__ = "0.1.0"
