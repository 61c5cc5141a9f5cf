"""Pods and requests to render, for the tests of the kubernetes launcher."""

import msgspec

from hangdrill.launchers.kubernetes_pod import PodOrder
from hangdrill.launchers.protocol import LaunchRequest
from hangdrill.model.kubernetes import Kubernetes

SETTINGS = Kubernetes(
    engine="cluster",
    context="staging",
    image="registry.example/train:1",
    run_volume="pvc:drills",
    mount_path="/mnt/runs",
)
RUN_ID = "hd-0123456789ab"
COLLECTOR = ("python3", "-m", "hangdrill.collector.sidecar", "--exit-file", "/mnt/runs/a/control/collector.exit", "--")


def settings(**changes) -> Kubernetes:
    return msgspec.structs.replace(SETTINGS, **changes)


def pod_order(**changes) -> PodOrder:
    values = {
        "run_id": RUN_ID,
        "controller": "4711:99",
        "settings": SETTINGS,
        "command": ("python3", "-m", "torch.distributed.run", "train.py"),
        "collector": COLLECTOR,
        "environ": {"HANGDRILL_RUN_ID": RUN_ID, "OMP_NUM_THREADS": "1"},
        "uid": 1000,
        "gid": 1000,
        "run_dir": "/mnt/runs/a",
    }
    return PodOrder(**{**values, **changes})


def cluster_request(**changes) -> LaunchRequest:
    values = {
        "run_id": RUN_ID,
        "python": "/opt/env/bin/python",
        "nnodes": 1,
        "nproc_per_node": 2,
        "max_restarts": 0,
        "target": "workload:ddp",
        "args": ("--steps", "12"),
        "environ": {"HOME": "/home/me", "SECRET": "s3cret"},
        "set_environ": {
            "HANGDRILL_RUN_ID": RUN_ID,
            "HANGDRILL_CONTROLLER": "4711:99",
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONPATH": "/mnt/runs/a/agent:/home/me/code",
        },
        "cwd": "/mnt/runs/a",
        "log_path": "/mnt/runs/a/job.log",
        "run_dir": "/mnt/runs/a",
        "collector": COLLECTOR,
    }
    return LaunchRequest(**{**values, **changes})
