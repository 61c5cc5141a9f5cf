"""What a podman that refuses is quoted with: its last line counts, and the lines before it say why."""

import os

import pytest

from hangdrill.launchers.podman import Podman
from hangdrill.model.errors import MachineError


def test_the_reason_is_quoted_and_not_only_the_count(tmp_path):
    program = tmp_path / "podman"
    program.write_text(
        "#!/bin/sh\n"
        "echo 'starting container ab12: runc: error setting rlimit type 7: operation not permitted' >&2\n"
        "echo 'Error: failed to start 2 containers' >&2\n"
        "exit 125\n"
    )
    program.chmod(0o755)
    with pytest.raises(MachineError) as caught:
        Podman(os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}).pods()
    assert "error setting rlimit type 7" in caught.value.what
    assert caught.value.what.endswith("Error: failed to start 2 containers")
