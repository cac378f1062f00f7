"""`python -m kolo doctor`: shows what this machine provides for jobs, and what it lacks."""

from __future__ import annotations

import ctypes
import os
import pathlib
import platform
import resource
import shutil
import socket
import sys
from typing import Callable, Iterator

from . import __version__, _local_ranks
from ._library import library, nvidia_nccl


Findings = Iterator[tuple[str, str]]
"""Lines that begin with "ok", "note" or "FAIL": FAIL is an error on this machine, and a note may be one in some
jobs."""


def _python() -> Findings:
    libc = " ".join(platform.libc_ver()) or "unknown C library"
    yield "ok", f"Python {platform.python_version()} on {platform.machine()}, {libc}, Linux {platform.release()}"


def _library() -> Findings:
    try:
        loaded = library()
    except ImportError as error:
        yield "FAIL", str(error)
        return
    version = loaded.kolo_version().decode()
    if version.split("+")[0].split(" ")[0] == __version__:
        yield "ok", f"{loaded._name}, version {version}, has all functions of this package"
    else:
        yield "note", f"{loaded._name} is of version {version}, this package of {__version__}; install both together"


def _cores() -> Findings:
    cores = len(os.sched_getaffinity(0))
    threads = os.environ.get("OMP_NUM_THREADS")
    yield "ok", f"{cores} cores for this process of {os.cpu_count()}, OMP_NUM_THREADS={threads or '(not set)'}"
    if cores == 1 and (os.cpu_count() or 1) > 1:
        yield "note", "this process is bound to one core; ranks with threads want more (mpirun --bind-to none)"


def _memory() -> Findings:
    shared = shutil.disk_usage("/dev/shm") if os.path.isdir("/dev/shm") else None
    if shared is not None and shared.total >= 1 << 30:
        yield "ok", f"/dev/shm has {shared.free >> 20} MiB free of {shared.total >> 20}"
    else:
        size = f"has only {shared.total >> 20} MiB" if shared else "is missing"
        yield "note", (f"/dev/shm {size}: Kolo takes none of it, but NCCL, Open MPI and torch's DataLoader do "
                   "(docker run --shm-size 8g)")
    try:
        os.close(os.memfd_create("kolo-doctor"))
    except OSError as error:
        yield "FAIL", f"shared memory (memfd_create) is refused: {error}; look at the container's seccomp profile"
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if locked == resource.RLIM_INFINITY:
        yield "ok", "memory may be locked without limit"
    else:
        yield "note", f"{locked >> 10} KiB of memory may be locked: enough for TCP; RDMA wants `ulimit -l unlimited`"


def _descriptors() -> Findings:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} descriptors may be open, {hard} at most"
    yield ("ok", text) if soft >= 1024 else ("FAIL", f"{text}: raise the limit, `ulimit -n {min(hard, 65536)}`")


def _ucx() -> Findings:
    name = os.environ.get("KOLO_UCX_LIBRARY", "libucp.so.0")
    try:
        ucx = ctypes.CDLL(name)
    except OSError as error:
        yield "note", (f"no UCX ({error}): ranks on one machine do without it; jobs over several need it "
                   "(Debian: libucx0, RHEL: ucx; KOLO_UCX_LIBRARY names another)")
        return
    ucx.ucp_get_version_string.restype = ctypes.c_char_p
    yield "ok", f"UCX {ucx.ucp_get_version_string().decode()} ({name})"


def _nccl() -> Findings:
    name = os.environ.get("KOLO_NCCL_LIBRARY") or nvidia_nccl() or "libnccl.so.2"
    try:
        ctypes.CDLL(name).ncclGetVersion(ctypes.byref(version := ctypes.c_int()))
    except OSError as error:
        yield "note", (f"no NCCL ({error}): only ranks on GPUs need it "
                   "(pip install nvidia-nccl-cu13; KOLO_NCCL_LIBRARY names another)")
        return
    number = version.value
    yield "ok", f"NCCL {number // 10000}.{number // 100 % 100}.{number % 100} ({name})"


def _launchers() -> Findings:
    found = [f"{name} ({shutil.which(name)})" for name in ("mpirun", "torchrun", "srun") if shutil.which(name)]
    if found:
        yield "ok", "launchers: " + ", ".join(found)
    else:
        yield "note", "no mpirun, torchrun or srun on PATH; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT do as well"
    if shutil.which("mpirun"):
        try:
            ctypes.CDLL("libpmix.so.2")
        except OSError as error:
            yield "note", f"no PMIx on the loader's path ({error}): under mpirun Kolo looks for that of Open MPI"


def _network() -> Findings:
    devices = []
    for device in sorted(pathlib.Path("/sys/class/net").glob("*")):
        try:
            state = (device / "operstate").read_text().strip()
            speed = (device / "speed").read_text().strip() if state == "up" else ""
        except OSError:  # Reading the speed fails for devices without one.
            speed = ""
        if state == "up":
            devices.append(f"{device.name} {speed} Mbit/s" if speed not in ("", "-1") else device.name)
    if devices:
        yield "ok", "network devices that are up: " + ", ".join(devices)
    else:
        yield "note", "no network device is up: jobs stay on this machine"
    host = socket.gethostname()
    try:
        addresses = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host, None)})
    except OSError as error:
        yield "note", f"{host}, the name of this host, has no address ({error}): as MASTER_ADDR give an address"
        return
    if all(address.startswith("127.") or address == "::1" for address in addresses):
        yield "note", f"{host} is {', '.join(addresses)} here, which other hosts cannot reach: as MASTER_ADDR give another"
    else:
        yield "ok", f"{host} is {', '.join(addresses)}"


def _sum() -> Findings:
    outcomes = _local_ranks.run(2, 60, "kolo._doctor")
    if all(status == 0 for status, _ in outcomes):
        yield "ok", "an all-reduce on two local ranks has the right sum"
    for rank, (status, output) in enumerate(outcomes):
        if status:
            end = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            yield "FAIL", f"an all-reduce on two local ranks: rank {rank} {end}\n{output}"


def _sum_here() -> int:
    """Sums on each of the two ranks and returns the exit status. It works without NumPy, which may be missing."""
    import array

    from ._runtime import open as open_job

    with open_job(connect_timeout=30000) as job:
        values = array.array("d", [(job.rank + 1) * 1000 + index for index in range(1000)])
        job.all_reduce(values)
        wrong = [index for index in range(1000) if values[index] != 3000 + 2 * index]
    if wrong:
        print(f"element {wrong[0]} is {values[wrong[0]]}, not {3000 + 2 * wrong[0]}")
    return 1 if wrong else 0


_CHECKS: list[Callable[[], Findings]] = [
    _python, _library, _cores, _memory, _descriptors, _ucx, _nccl, _launchers, _network, _sum
]  # fmt: skip


def main() -> int:
    """Prints all findings; returns 1 if there is a failure."""
    failed = False
    for look in _CHECKS:
        for kind, text in look():
            print(f"{kind:<5} " + text.replace("\n", "\n      "), flush=True)
            failed = failed or kind == "FAIL"
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(_sum_here())
