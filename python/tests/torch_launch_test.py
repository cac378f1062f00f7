#!/usr/bin/env -S python3 -B
"""Tests how jobs of torch start, and how torchrun handles a lost rank.

    torch_launch_test.py LIBRARY [mpi=1 ucx=1]
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import support
import torch_support

torch_support.enter_python_with_torch()

from scene_jobs import HERE, SETTINGS, job  # noqa: E402  (a Python that has torch)

SCENES = str(HERE / "torch_scenes.py")
EXAMPLE = str(support.PACKAGE / "examples" / "elastic.py")
CLUSTER = support.ROOT / "scripts" / "cluster"

# Seconds within which, after a rank is killed, frozen or cut off, all other ranks must end by an uncaught exception.
PROMISED_S = 12

# Interval in seconds at which torchrun checks its processes. Survivors end by themselves before torchrun ends them.
MONITOR_S = 4

# A program that waits for the end of a process.
WATCH = """
import os, select, sys
try:
    select.select([os.pidfd_open(int(sys.argv[1]))], [], [])
except ProcessLookupError:
    pass  # It has ended.
"""


def settings(**more):
    """Returns the environment of a rank without variables of torch's launchers."""
    return job.environment(**SETTINGS) | {"OMP_NUM_THREADS": "1"} | more


class Rendezvous(unittest.TestCase):
    """Tests the rendezvous `kolo://`."""

    def run_ranks(self, scene, variables_of_ranks):
        variables = [settings(SCENE_METHOD="kolo://", **each) for each in variables_of_ranks]
        with job.processes(["-B", SCENES, scene], variables) as ranks:
            for rank in ranks:
                self.assertEqual(rank.finish(), 0, rank.errors())

    def test_alone(self):
        self.run_ranks("again", [{}])

    def test_slurm(self):
        port = str(job.free_port())
        common = {"SLURM_JOB_ID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "localhost"}
        common |= {"MASTER_PORT": port}
        self.run_ranks("messages,ddp", [common | {"SLURM_PROCID": str(rank)} for rank in range(2)])

    def test_torchruns_variables(self):
        common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(job.free_port())}
        self.run_ranks("messages,again", [common | {"RANK": str(rank)} for rank in range(2)])

    @job.needs_mpi
    def test_mpirun(self):
        self.run_under_mpirun("messages,ddp,again", nodes=0)

    @job.needs_mpi
    @job.needs_ucx
    def test_mpirun_on_two_nodes(self):
        self.run_under_mpirun("messages,again", nodes=2)

    def run_under_mpirun(self, scene, nodes):
        command = [job.LAUNCH, "-n", "2", "--nodes", nodes, "--timeout", job.PATIENCE, "--", sys.executable, "-B", SCENES]
        done = subprocess.run(
            [str(word) for word in (*command, scene)],
            env=settings(SCENE_METHOD="kolo://"),
            capture_output=True,
            text=True,
            timeout=2 * job.PATIENCE,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_world_size_that_is_not_the_launchers(self):
        script = (
            "import torch.distributed as dist, kolo.torch; "
            "dist.init_process_group('kolo', init_method='kolo://', rank=0, world_size=2)"
        )
        with job.processes(["-B", "-c", script], [settings(PYTHONPATH=str(support.PACKAGE))]) as (rank,):
            self.assertEqual(rank.finish(), 1)
            self.assertIn("init_process_group was given world_size=2, but the launcher says 1", rank.errors())

    CLAIMS = """
import os
import unittest.mock
from torch.distributed import HashStore
import kolo
from kolo.torch import _jobs

store = HashStore()
store.add("kolo comers 0", 1)
store.set("kolo comer 0 1", "process 1 of another host")
try:
    _jobs.open_job(store, 0, 2)
except kolo.ConfigError as error:
    print(error)

store = HashStore()

def meet(**options):
    store.add("kolo comers 0", 1)  # A second one comes while the first waits for rank 1.
    return job

job = unittest.mock.Mock()
with unittest.mock.patch.object(kolo, "open", meet):
    try:
        _jobs.open_job(store, 0, 2)
    except kolo.ConfigError as error:
        print(error)
job.abort.assert_called_once()

store = HashStore()
store.add("kolo comers 0", 1)
store.set("kolo comer 0 1", "process 1 of another host")
os.environ["TORCHELASTIC_RUN_ID"] = "1"  # torchrun counts no restart when hosts come.
with unittest.mock.patch.object(kolo, "open", lambda **options: job):
    assert _jobs.open_job(store, 0, 2) is job
"""

    def test_two_processes_of_one_rank(self):
        """Ranks of two jobs meet in one store if both jobs have the same port. Ranks that torchrun restarts may find
        the store of the former ranks."""
        variables = settings(PYTHONPATH=str(support.PACKAGE), MASTER_PORT="4711")
        with job.processes(["-B", "-c", self.CLAIMS], [variables]) as (rank,):
            self.assertEqual(rank.finish(), 0, rank.errors())
        first, second = rank.lines
        self.assertIn("two processes are rank 0, process 1 of another host and process ", first)
        self.assertIn("another process has come as rank 0 beside process ", second)
        for line in rank.lines:
            self.assertIn("is another job at port 4711?", line)

    STARTS = """
import unittest.mock
from concurrent.futures import ThreadPoolExecutor
from torch.distributed import HashStore
import kolo
from kolo.torch import _jobs

def exchange(*, store, rank, world_size, start, job="kolo", **options):
    mine = f"start {start}, rank {rank}; ".encode()
    if rank == 0:
        texts = [mine, *(store.get(f"{job}/0/{other}", 10) for other in range(1, world_size))]
        store.set(f"{job}/0/all", b"".join(texts))
    else:
        store.set(f"{job}/0/{rank}", mine)
    return unittest.mock.Mock(met=store.get(f"{job}/0/all", 10))

store = HashStore()
lost = {1: [0], 2: [1], 3: [0, 2]}
for start, size in enumerate((2, 2, 3, 2, 1, 2, 3), 1):
    for rank in lost.get(start, ()):  # These die in a start before.
        with unittest.mock.patch.object(kolo, "open", side_effect=SystemExit):
            try:
                _jobs.open_job(store, rank, size)
            except SystemExit:
                pass
    with unittest.mock.patch.object(kolo, "open", exchange), ThreadPoolExecutor(size) as threads:
        met = list(threads.map(lambda rank: _jobs.open_job(store, rank, size, start=start).met, range(size)))
    assert met == ["".join(f"start {start}, rank {rank}; " for rank in range(size)).encode()] * size, (start, met)
"""

    def test_starts_that_share_a_store(self):
        """torchrun keeps one store for all starts. In some of them a rank dies before it meets the others, and each may
        have another number of ranks."""
        with job.processes(["-B", "-c", self.STARTS], [settings(PYTHONPATH=str(support.PACKAGE))]) as (rank,):
            self.assertEqual(rank.finish(), 0, rank.errors())

    def test_an_address_in_brackets(self):
        """torch itself does not resolve such an address."""
        place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "[::1]", "MASTER_PORT": str(job.free_port())}
        self.run_ranks("again", [place])


class Training:
    """Runs the example under torchrun, reads its output, and records when its processes end."""

    def __init__(self, commands, folder, steps):
        words = [EXAMPLE, "--checkpoints", folder, "--steps", str(steps), "--every", "50"]
        self.losses = {}
        self.begins = []
        self.lines = []  # Lines of output, each with its agent.
        self.processes = []  # Rank, agent and process number, in the order of their starts.
        self.ends = {}  # By agent and process number.
        self._changed = threading.Condition()
        # The agent kills a frozen rank after this time, in seconds.
        variables = settings(PYTHONPATH=str(support.PACKAGE), TORCH_ELASTIC_SHUTDOWN_TIMEOUT="1")
        self._prefixes = [[]]
        if len(commands) > 1:
            variables["KOLO_CLUSTER"] = os.environ["KOLO_CLUSTER"]
            self._prefixes = [command[: command.index("--") + 1] for command in commands]
        self._agents = [
            subprocess.Popen(
                [*map(str, command), *words], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            for command in commands
        ]
        self._readers = [
            threading.Thread(target=self._read, args=[index, agent.stdout], daemon=True)
            for index, agent in enumerate(self._agents)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, agent, output):
        for line in output:
            with self._changed:
                self._note(agent, line)
                self._changed.notify_all()

    def _note(self, agent, line):
        self.lines.append((agent, line))
        for rank, process, step in re.findall(r"rank (\d+), process (\d+): from step (\d+)", line):
            self.processes.append((int(rank), agent, int(process)))
            self.begins.append(int(step))
            threading.Thread(target=self._await_end, args=[agent, process], daemon=True).start()
        for step, loss in re.findall(r"step (\d+): loss ([-+.e\d]+)", line):
            self.losses.setdefault(int(step), set()).add(loss)

    def _await_end(self, agent, process):
        command = [*map(str, self._prefixes[agent]), sys.executable, "-c", WATCH, process]
        subprocess.run(command, capture_output=True, check=False)
        with self._changed:
            self.ends[agent, int(process)] = time.monotonic()
            self._changed.notify_all()

    def said(self, agent, local_rank):
        """Returns the whole output of ranks with this local rank under this agent."""
        return "".join(line for of, line in self.lines if of == agent and line.startswith(f"[default{local_rank}]:"))

    def was_ended(self, process):
        """Returns whether an agent has sent the process a signal."""
        return any(f"Sending process {process} closing signal" in line for _, line in self.lines)

    def await_end(self, agent, process):
        """Waits for the end of a process and returns its time."""
        with self._changed:
            if not self._changed.wait_for(lambda: (agent, process) in self.ends, job.PATIENCE):
                raise AssertionError(f"process {process} does not end:\n{self}")
            return self.ends[agent, process]

    def await_step(self, step):
        with self._changed:
            if not self._changed.wait_for(lambda: step in self.losses, job.PATIENCE):
                raise AssertionError(f"no step {step}:\n{self}")

    def status(self, agent=0):
        """Waits for the end of an agent and of its output; returns its exit status."""
        status = self._agents[agent].wait(3 * job.PATIENCE)
        self._readers[agent].join()
        return status

    def close(self):
        """Ends the remaining processes; a cluster ends its processes itself."""
        for reader, agent in zip(self._readers, self._agents):
            if agent.poll() is None:
                agent.kill()
            agent.wait()
            if len(self._agents) == 1:
                for _, number, process in self.processes:
                    with contextlib.suppress(ProcessLookupError):
                        if (number, process) not in self.ends:
                            os.kill(process, signal.SIGKILL)
                reader.join()
                agent.stdout.close()

    def __str__(self):
        steps = f"{len(self.losses)} steps, begun at {self.begins}\n"
        return steps + "".join(line for _, line in self.lines if ": loss " not in line)


class Losing(unittest.TestCase):
    def check_end(self, training, agent, rank, process, begun, cause):
        """Checks that a survivor has ended in time; prints the time."""
        seconds = training.await_end(agent, process) - begun
        print(f"\nrank {rank} ended {seconds:.1f} s after {cause}", file=sys.stderr)
        self.assertLess(seconds, PROMISED_S, training)


class Elastic(Losing):
    """Survivors of a lost rank end by themselves, and torchrun starts all ranks again from the last checkpoint."""

    STEPS = 400
    RANKS = 3

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        training = Training(cls.torchrun(), f"{cls.folder.name}/undisturbed", cls.STEPS)
        status = training.status()
        training.close()
        cls.expected = training.losses
        assert status == 0, training
        assert len(cls.expected) == cls.STEPS, training

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def torchrun(cls):
        run = [sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(cls.RANKS)]
        return [[*run, "--max-restarts", "3", "--monitor-interval", str(MONITOR_S), "--tee", "3"]]

    def lose(self, lost, number):
        training = Training(self.torchrun(), f"{self.folder.name}/{number.name}{lost}", self.STEPS)
        self.addCleanup(training.close)
        training.await_step(70)
        process_of = {rank: process for rank, _, process in training.processes}
        begun = time.monotonic()
        os.kill(process_of[lost], number)
        status = training.status()
        for rank, process in process_of.items():
            if rank != lost:
                self.check_end(training, 0, rank, process, begun, f"signal {number.name} to rank {lost}")
                self.assertFalse(training.was_ended(process), training)
                self.assertRegex(training.said(0, rank), rf"PeerLostError: .*rank {lost}\b")
        self.assertEqual(status, 0, training)
        self.assertEqual(training.losses, self.expected, training)
        self.assertEqual(training.begins[: self.RANKS], [0] * self.RANKS, training)
        self.assertGreaterEqual(len(training.begins), 2 * self.RANKS, training)
        self.assertGreaterEqual(min(training.begins[self.RANKS :]), 50, training)

    def test_a_rank_that_is_killed(self):
        self.lose(1, signal.SIGKILL)

    def test_rank_0_is_killed(self):
        self.lose(0, signal.SIGKILL)

    def test_a_rank_that_freezes(self):
        self.lose(1, signal.SIGSTOP)


@job.needs_mpi
@job.needs_ucx
class CutLink(Losing):
    """Cuts the link between two hosts. Each has an agent of torchrun; the first has the store. Kolo finds the
    interface."""

    STEPS = 200

    @classmethod
    def setUpClass(cls):
        check = subprocess.run([CLUSTER, "check"], capture_output=True, text=True, check=False)
        if check.returncode:
            raise unittest.SkipTest(check.stdout.strip() or check.stderr.strip())

    def setUp(self):
        patched = unittest.mock.patch.dict(os.environ, KOLO_CLUSTER=f"torch{os.getpid()}")
        patched.start()
        self.addCleanup(patched.stop)
        self.addCleanup(subprocess.run, [CLUSTER, "down"], check=True)
        subprocess.run([CLUSTER, "up", "2", "none", "--ttl", "400"], check=True, stdout=subprocess.DEVNULL)

    def on_all_hosts(self, command):
        subprocess.run([CLUSTER, "exec", "all", "--", *command.split()], check=True)

    def test_a_link_that_is_cut(self):
        first = f"{os.environ['KOLO_CLUSTER']}0"
        run = ["-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1", "--rdzv-backend", "c10d"]
        run += ["--rdzv-endpoint", f"{first}:29400", "--max-restarts", "3", "--tee", "3"]
        commands = [[CLUSTER, "exec", host, "--", sys.executable, "-B", *run] for host in range(2)]
        with tempfile.TemporaryDirectory() as folder:
            training = Training(commands, folder, self.STEPS)
            self.addCleanup(training.close)
            training.await_step(70)
            begun = time.monotonic()
            # A token bucket smaller than a packet lets no packet pass, without an error.
            self.on_all_hosts("tc qdisc replace dev eth0 root tbf rate 8bit burst 10 limit 10")
            # The agent without a store gives up late, and may end its rank first. The other agent goes on alone.
            self.assertEqual(training.status(0), 0, training)
        for rank, agent, process in training.processes[:2]:
            self.check_end(training, agent, rank, process, begun, "the cut")
            if agent == 0 or not training.was_ended(process):
                self.assertRegex(training.said(agent, 0), rf"PeerLostError: .*rank {1 - rank}\b")
        self.assertEqual(sorted(training.losses), list(range(self.STEPS)), training)
        self.assertEqual(training.begins[:2], [0, 0], training)
        self.assertEqual(len(training.begins), 3, training)
        self.assertGreaterEqual(training.begins[2], 50, training)


if __name__ == "__main__":
    job.main()
