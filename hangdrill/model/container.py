"""`[job.container]` of a scenario: the user's own image, in which the ranks run.

The keys are a contract (docs/reference/scenario.md). Without an image the container has the host's programs.
"""

import msgspec

__all__ = ["IMAGE_PYTHON", "Container"]

IMAGE_PYTHON = "python3"
"""The Python of an image that names none: a word, found on the image's own PATH."""


class Container(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the ranks' container is made of."""

    image: str | None = None
    """With torch, as the engine knows it: "registry/train:2.15", or an id. It is never pulled and never removed."""
    python: str = IMAGE_PYTHON
    """In the image: a path, or a word on its PATH."""
