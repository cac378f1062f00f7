"""Starts jobs of real processes for this folder's tests, disturbs them, and reads their output.

A test file is called as `NAME.py JOB_PROGRAM mpi=1 ucx=1`; the arguments after the program list the build's features.
"""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAUNCH = ROOT / "scripts" / "launch"
PROGRAM = sys.argv[1]
HAS_MPI = "mpi=1" in sys.argv
HAS_UCX = "ucx=1" in sys.argv

# No job takes this long on any machine. It is far below Kolo's own limit for an operation.
PATIENCE = 60

PEER_LOST = 69
IO = 74
MISMATCH = 76
CONFIG = 78

# Variables that tell a process that it belongs to a job, or that change Kolo's behaviour.
LAUNCHER_VARIABLE = re.compile(r"(OMPI|PMI|PMIX|PRTE|SLURM|KOLO|TORCHELASTIC)_|(RANK|WORLD_SIZE|MASTER_.*)$")

needs_mpi = unittest.skipUnless(HAS_MPI, "built without MPI")
needs_ucx = unittest.skipUnless(HAS_UCX, "built without UCX")


def environment(**settings):
    """Returns the environment of a rank: without variables of another job, and with the given
    KOLO_* variables."""
    clean = {name: value for name, value in os.environ.items() if not LAUNCHER_VARIABLE.match(name)}
    options = {"KOLO_" + name.upper(): str(value) for name, value in settings.items()}
    return clean | options | {"PYTHONFAULTHANDLER": "1"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Rank:
    """One process of a job, with separate output."""

    def __init__(self, rank, arguments, variables):
        self.rank = rank
        self._errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [PROGRAM, *map(str, arguments)],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.lines = []
        self._switches = None

    def read_until(self, text):
        """Reads lines until one contains `text`."""
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if text in line:
                return
        raise AssertionError(f"rank {self.rank} ended without '{text}': {self.lines} {self.errors()}")

    def signal(self, number):
        self.process.send_signal(number)

    def go_on(self):
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def said(self):
        return f"{self.lines}\n{self.errors()}"

    def _status(self):
        """Returns the system's status of the main thread."""
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return dict(line.split(":\t", 1) for line in lines if ":\t" in line)

    def is_asleep(self):
        """Returns whether the main thread sleeps and has not woken since the last check."""
        status = self._status()
        last, self._switches = self._switches, status["voluntary_ctxt_switches"]
        return status["State"].startswith("S") and self._switches == last

    def is_stopped(self):
        return self._status()["State"].startswith("T")

    def finish(self):
        """Waits for the end of the rank; returns the exit status. A rank that takes too long is
        killed. A Python rank prints the stacks of its threads before that."""
        try:
            output, _ = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.lines.append(f"rank {self.rank} was still running after {PATIENCE} s")
            self.signal(signal.SIGABRT)
            output, _ = self.process.communicate(timeout=PATIENCE)
        self.lines += output.splitlines()
        return self.process.returncode

    def errors(self):
        self._errors.seek(0)
        return self._errors.read()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self._errors.close()


@contextlib.contextmanager
def processes(arguments, variables_of_ranks):
    """Starts a process with each of these environments. All end with the `with` block."""
    ranks = []
    try:
        for number, variables in enumerate(variables_of_ranks):
            ranks.append(Rank(number, arguments, variables))
        yield ranks
    finally:
        for rank in ranks:
            rank.close()


@contextlib.contextmanager
def started(arguments, nodes, **settings):
    """Starts a job like torchrun, without MPI, and yields its ranks. nodes=[2, 1] means three
    ranks on two nodes; "aba" gives each rank's node. If one rank fails, the others are not
    killed, but all end with the `with` block."""
    node_of_rank = nodes if isinstance(nodes, str) else [node for node, size in enumerate(nodes) for _ in range(size)]
    common = environment(**settings) | {
        "WORLD_SIZE": str(len(node_of_rank)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())
    }  # fmt: skip
    several = len(nodes) > 1
    variables = [
        common | {"RANK": str(rank)} | ({"KOLO_NODE_ID": f"node{node}"} if several else {})
        for rank, node in enumerate(node_of_rank)
    ]
    with processes(arguments, variables) as ranks:
        yield ranks


class Outcome:
    """The end of a job: exit status and lines of each rank, and the whole standard error."""

    def __init__(self, statuses, lines, errors):
        self.statuses = statuses
        self.lines = lines
        self.errors = errors

    def __str__(self):
        return "\n".join([f"exit statuses {self.statuses}", *self.lines, self.errors])

    def find(self, pattern):
        """Returns the first group of every line that matches."""
        return [match[1] for match in (re.search(pattern, line) for line in self.lines) if match]

    def digest(self, ranks, nodes):
        """Returns the digest of the results, if every rank succeeded with the same digest."""
        digests = self.find(rf"done on node \d+ of {nodes}, digest (\w+)")
        if any(self.statuses) or len(digests) != ranks or len(set(digests)) != 1:
            raise AssertionError(f"not {ranks} equal digests on {nodes} nodes:\n{self}")
        return digests[0]


def run(arguments, nodes, **settings):
    """Starts a job like torchrun and waits for its end."""
    with started(arguments, nodes, **settings) as ranks:
        statuses = [rank.finish() for rank in ranks]
        lines = [line for rank in ranks for line in rank.lines]
        return Outcome(statuses, lines, "".join(rank.errors() for rank in ranks))


def run_command(command, **settings):
    """Starts a job by a launcher and waits for its end."""
    done = subprocess.run(
        [str(word) for word in command],
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    return Outcome([done.returncode], done.stdout.splitlines(), done.stderr)


def run_mpi(arguments, ranks, nodes=0, program=PROGRAM, **settings):
    return run_command(
        [LAUNCH, "-n", ranks, "--nodes", nodes, "--timeout", PATIENCE, "--", program, *arguments], **settings
    )


PRIVATE = "--in-a-machine-of-its-own"


def enter_private_machine():
    """Restarts this test in new namespaces: with separate processes, /tmp, /dev/shm and network.
    Ends with 77 and the reason if that is not allowed."""
    if PRIVATE in sys.argv:
        for command in ("mount -t tmpfs tmpfs /dev/shm", "ip link set lo up"):
            subprocess.run(command.split(), check=True)
        return
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    wrapper = ["unshare", *user, "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    try:
        subprocess.run([*wrapper, "ip", "link", "set", "lo", "up"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: this system does not allow namespaces: {error}")
        sys.exit(77)
    # The new /tmp is an empty subdirectory. The program may be in the outer one.
    with tempfile.TemporaryDirectory() as temporary:
        inner = subprocess.run(
            [*wrapper, sys.executable, "-B", *sys.argv, PRIVATE], env=os.environ | {"TMPDIR": temporary}, check=False
        )
    sys.exit(inner.returncode)


def read_until(ranks, text):
    for rank in ranks:
        rank.read_until(text)


class Test(unittest.TestCase):
    def expect_lost(self, rank, lost, but_for=None):
        """Expects that this rank ends with the error that names the lost rank. With `but_for`,
        it may also succeed with this last line."""
        if rank.finish() == 0 and but_for:
            return self.assertIn(but_for, rank.lines[-1], rank.said())
        self.assertEqual(rank.process.returncode, PEER_LOST, rank.said())
        self.assertIn(f"error {PEER_LOST} about rank {lost}: ", rank.lines[-1], rank.said())


def wait_until(condition, what):
    """Polls until `condition()` returns true, for states that cause no event."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"never: {what}")
        time.sleep(0.01)


def traces():
    """Returns the processes, files and sockets of this machine."""
    processes = {
        f"process {process.name} {(process / 'comm').read_text().strip()}"
        for process in pathlib.Path("/proc").iterdir()
        if process.name.isdigit()
    }
    files = {str(path) for folder in ("/dev/shm", tempfile.gettempdir()) for path in pathlib.Path(folder).rglob("*")}
    tables = ("unix", "tcp", "tcp6", "udp")
    sockets = set()
    for table in tables:
        for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]:
            # 06 is TIME_WAIT, which the protocol requires of a closed connection.
            if not line.split()[3] == "06" or table == "unix":
                sockets.add(f"socket {table} {line.strip()}")
    return processes | files | sockets


class LeavesNothing(Test):
    """Checks in `check_nothing_left` that no process, file or socket of a test remains."""

    def setUp(self):
        self.before = traces()

    def check_nothing_left(self):
        wait_until(lambda: not traces() - self.before, "nothing is left: " + str(traces() - self.before))


def main():
    """Runs the tests of the calling file, or those that the command line names after the program; exits with 77 if
    there are none."""
    names = [word for word in sys.argv[2:] if "=" not in word and not word.startswith("-")]
    program = unittest.main(argv=[sys.argv[0], "-v", *names], exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    if len(program.result.skipped) == program.result.testsRun:
        print("skipped:", *{reason for _, reason in program.result.skipped})
        sys.exit(77)
