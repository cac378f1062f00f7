"""Starts ranks on this machine without a launcher."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys


def run(ranks: int, timeout: float, module: str, *arguments: str) -> list[tuple[int, str]]:
    """Runs `python -m MODULE ARGUMENTS` on `ranks` ranks. Returns the exit status and the output of each rank. A rank
    that takes longer than `timeout` seconds is killed, and its status is the negative signal number."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, **job, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    outcomes = []
    for process in processes:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        outcomes.append((process.returncode, output.strip()))
    return outcomes


def is_alone() -> bool:
    """Returns whether this process was started without a launcher."""
    launchers = ("RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_STEP_NUM_TASKS")
    return not any(name in os.environ for name in launchers)


def most_local_ranks() -> int:
    """Returns how many ranks the launcher has started on a node at most; 0 if its variables do not tell."""
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "WORLD_SIZE", "SLURM_STEP_TASKS_PER_NODE"):
        if name in os.environ:  # That of Slurm is such as "4(x2),3": two nodes with 4, one with 3.
            return max(map(int, re.findall(r"\d+(?!\d|\))", os.environ[name])), default=0)
    return 1 if is_alone() else 0
