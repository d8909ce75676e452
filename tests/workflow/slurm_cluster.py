"""A Slurm cluster of one node on the loopback host, from Debian's packages, with two GPUs that are not there.

It lives in one folder and in a mount namespace of its own, where its configuration stands for /etc/slurm, and leaves
nothing behind. It needs root. By hand: ``python tests/workflow/slurm_cluster.py FOLDER`` starts it, says how to
enter, and stops it on Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "unshare", "nsenter")
CONFIG = """\
ClusterName=toy
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=500
MinJobAge=3600
KillWait=5
GresTypes=gpu
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 {node}
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Cluster:
    """A running cluster; ``namespace`` is the process whose mount namespace it lives in."""

    folder: Path
    namespace: int

    def command(self, arguments: Sequence[str], folder: str | Path = ".") -> list[str]:
        """A command line that runs ``arguments`` in ``folder`` where the cluster can be seen."""
        enter = ["nsenter", f"--target={self.namespace}", "--mount", "--", "sh", "-c", 'cd "$0" && exec "$@"']
        return [*enter, str(Path(folder).resolve()), *map(str, arguments)]

    def run(self, *arguments: str) -> str:
        """What one of Slurm's commands prints."""
        return subprocess.run(
            self.command(arguments), check=True, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        ).stdout

    def jobs(self) -> list[dict[str, str]]:
        """All jobs so far, as ``scontrol`` knows them."""
        text = self.run("scontrol", "show", "jobs", "--oneliner")
        return [
            dict(part.split("=", 1) for part in line.split() if "=" in part)
            for line in text.splitlines()
            if line.startswith("JobId=")
        ]


def missing() -> str | None:
    """Why no cluster can be started here, or ``None`` when one can."""
    lacking = [program for program in PROGRAMS if _which(program) is None]
    if lacking:
        return f"no Slurm here: {', '.join(lacking)} not found (Debian: apt-get install slurm-wlm munge)"
    if os.geteuid() != 0:
        return "starting a Slurm cluster needs root"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        return "no mount namespace can be made here"
    return None


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster in a new folder, yield it when its node is idle, and stop it."""
    folder = folder.resolve()
    host = socket.gethostname().partition(".")[0]
    for name in ("etc", "state", "spool", "dev"):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    text = CONFIG.format(host=host, folder=folder, ports=_free_ports(2), node=f"RealMemory={memory} Gres=gpu:2")
    (folder / "etc/slurm.conf").write_text(text)
    (folder / "etc/gres.conf").write_text(f"AutoDetect=off\nNodeName={host} Name=gpu File={folder}/dev/fakegpu[0-1]\n")
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    for number in range(2):
        subprocess.run(["mknod", str(folder / f"dev/fakegpu{number}"), "c", "1", "3"], check=True)
    Path("/etc/slurm").mkdir(exist_ok=True)  # a place to mount on
    script = 'mount --bind "$0" /etc/slurm && echo ready && exec sleep infinity'
    with contextlib.ExitStack() as stack:
        holder = stack.enter_context(
            _process(["unshare", "--mount", "sh", "-c", script, str(folder / "etc")], folder / "namespace.log")
        )
        _wait(lambda: "ready" in (folder / "namespace.log").read_text(), "the mount namespace")
        here = Cluster(folder, holder.pid)
        files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "seed-file": "munge.seed"}
        munged = ["munged", "--foreground", "--force", *(f"--{key}={folder / name}" for key, name in files.items())]
        for command in (munged, ["slurmctld", "-D", "-c"], ["slurmd", "-D", "-c", "-N", host]):
            path = _which(command[0])
            log = folder / f"{command[0]}.out"
            stack.enter_context(_process(here.command([path, *command[1:]], folder), log))
            if command is munged:
                _wait((folder / "munge.socket").exists, "munged", log)
        _wait(lambda: "idle" in _state(here), "the node", folder / "slurmctld.log", folder / "slurmd.log")
        try:
            yield here
        finally:
            for job in here.run("squeue", "--noheader", "--format=%A").split():
                here.run("scancel", job)
            _wait(lambda: not here.run("squeue", "--noheader").strip(), "the last jobs to end")


def _state(here: Cluster) -> str:
    try:
        return here.run("sinfo", "--noheader", "--format=%T")
    except subprocess.CalledProcessError:
        return ""


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def _process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen]:
    with open(log, "w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(done, what: str, *logs: Path, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            tails = "\n".join(f"{log}:\n{log.read_text()[-2000:]}" for log in logs if log.exists())
            raise RuntimeError(f"{what} did not come up in {seconds:.0f} s\n{tails}")
        time.sleep(0.2)


if __name__ == "__main__":
    problem = missing()
    if problem or len(sys.argv) != 2:
        sys.exit(problem or __doc__)
    with cluster(Path(sys.argv[1])) as running:
        print(f"Slurm is up. In another terminal: nsenter --target={running.namespace} --mount; stop with Ctrl-C.")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(60)
