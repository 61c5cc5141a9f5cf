"""An image for tests, without a registry: an empty root directory with this host's programs mounted into it.

It has variables of its own, and an entrypoint that ends everything: whoever runs it is found out.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import docker
from box_requests import box_request, prepare_run

from hangdrill.launchers.box import box_of
from hangdrill.launchers.container import root_archive

__all__ = ["NAME", "made_image", "mounts_of_this_host"]

NAME = "hangdrill-test/train:2.15"
CHANGES = ['ENV PATH="/usr/bin:/bin"', 'ENV HD_OF_IMAGE="yes"', 'ENTRYPOINT ["/bin/false"]', 'CMD ["/bin/false"]']


def mounts_of_this_host(tmp_path: Path) -> tuple[str, ...]:
    """What makes the empty image work: this host's programs and the Python of these tests, read-only, as a user names
    mounts."""
    box = box_of(box_request(_run_in(tmp_path)))
    return tuple(
        f"{mount.source}:{mount.target}:ro" for mount in box.mounts if not Path(mount.source).is_relative_to(tmp_path)
    )


@contextlib.contextmanager
def made_image(
    environ: dict[str, str], tmp_path: Path, name: str = NAME, *, archive: bytes = b"", changes: Sequence[str] = CHANGES
) -> Iterator[str]:
    """Imported into the engine that the variables name, and removed again. archive: of its root, when it is not that of
    this host's links."""
    archive = archive or root_archive(box_of(box_request(_run_in(tmp_path))))
    client = docker.DockerClient.from_env(environment=environ)
    try:
        client.api.import_image_from_data(archive, repository=name, changes=list(changes))
        yield name
    finally:
        with contextlib.suppress(docker.errors.NotFound):
            client.images.remove(name, force=True)
        client.close()


def _run_in(tmp_path: Path) -> Path:
    """A run directory of its own at each call."""
    return prepare_run(Path(tempfile.mkdtemp(prefix="image-", dir=tmp_path)))
