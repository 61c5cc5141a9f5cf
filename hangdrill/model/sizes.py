"""Sizes as people write them: "64k", "2g", "512MiB"; always powers of 1024, as mount and Docker mean them."""

import re

__all__ = ["parse_size"]

_SIZE = re.compile(r"(\d{1,15})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str) -> int:
    """Bytes, above 0. ValueError with the reason when it is no size."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise ValueError(f'"{text}" is no size: write it as 64k, 512m or 2g')
    return int(match[1]) << 10 * _POWER[match[2].lower()]
