"""Two hosts for a test, on this machine."""

import pytest
from two_hosts import two_hosts, why_no_hosts


@pytest.fixture
def hosts():
    """Both, and everything removed afterwards; skips with the reason where they cannot be made."""
    if why := why_no_hosts("iptables", "tc"):
        pytest.skip(why)
    with two_hosts() as both:
        yield both
