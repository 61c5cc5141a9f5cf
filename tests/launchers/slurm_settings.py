"""The configuration of the tests' own Slurm: two nodes, no accounting, no cgroups."""

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["KILL_WAIT_S", "write_settings"]

KILL_WAIT_S = 5
SLURM_CONF = """
ClusterName=lab
SlurmctldHost=login
AuthType=auth/munge
AuthInfo=socket=/var/tmp/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait={kill_wait_s}
SlurmdTimeout=60
SlurmdParameters=config_overrides
PluginDir={plugins}
PlugStackConfig={lab}/plugstack.conf
SlurmUser=root
SlurmdUser=root
StateSaveLocation={lab}/state
SlurmctldPidFile={lab}/slurmctld.pid
SlurmdPidFile={lab}/slurmd.%n.pid
SlurmdSpoolDir=/var/tmp/slurmd.%n
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0,sched_min_interval=0
{container}
NodeName=n0 NodeAddr=10.77.0.10 CPUs=4 RealMemory=4000
NodeName=n1 NodeAddr=10.77.0.11 CPUs=4 RealMemory=4000
PartitionName=batch Nodes=n0,n1 Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
PartitionName=closed Nodes=n0,n1 MaxTime=INFINITE State=DOWN
"""
PRIVATE_TMP = "JobContainerType=job_container/tmpfs\nPrologFlags=Contain"
CGROUP_CONF = """
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
ConstrainCores=no
ConstrainRAMSpace=no
"""


def write_settings(directory: Path, addresses: Mapping[str, str], *, private_tmp: bool) -> None:
    """Into the lab's directory: the configuration, the key of munge, and the hosts' names."""
    directory.chmod(0o755)
    for name in ("bin", "log", "state"):
        (directory / name).mkdir()
    key = directory / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    names = "".join(f"{address} {name}\n" for name, address in addresses.items())
    (directory / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
    plugins = next(iter(Path("/usr").glob("lib*/**/slurm*/auth_munge.so"))).parent
    container = PRIVATE_TMP if private_tmp else ""
    text = SLURM_CONF.format(lab=directory, kill_wait_s=KILL_WAIT_S, plugins=plugins, container=container)
    (directory / "slurm.conf").write_text(text)
    (directory / "cgroup.conf").write_text(CGROUP_CONF)
    (directory / "plugstack.conf").write_text("")
    (directory / "job_container.conf").write_text("AutoBasePath=true\nBasePath=/var/tmp/jobs\n")
