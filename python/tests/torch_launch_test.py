#!/usr/bin/env -S python3 -B
"""How jobs of torch start, and what becomes of them under torchrun when a rank is lost.

    torch_launch_test.py LIBRARY [mpi=1 ucx=1]
"""

import contextlib
import os
import pathlib
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

LIBRARY = sys.argv.pop(1)
sys.argv.insert(1, sys.executable)
sys.path.insert(0, str(support.ROOT / "tests" / "integration"))
import job  # noqa: E402

SCENES = str(pathlib.Path(__file__).resolve().parent / "torch_scenes.py")
EXAMPLE = str(support.PACKAGE / "examples" / "elastic.py")
CLUSTER = support.ROOT / "scripts" / "cluster"

# Within this time a rank that is killed, frozen or cut off is an uncaught exception in all others.
PROMISED_S = 12


def settings(**more):
    """The environment of a rank that torch's launchers have not touched."""
    return job.environment(library=LIBRARY, calibrate="off") | {"OMP_NUM_THREADS": "1", "UCX_NET_DEVICES": "lo"} | more


class Rendezvous(unittest.TestCase):
    """`kolo://`"""

    def run_ranks(self, scene, variables_of_ranks):
        ranks = []
        try:
            for number, variables in enumerate(variables_of_ranks):
                variables = settings(SCENE_METHOD="kolo://", **variables)
                ranks.append(job.Rank(number, ["-B", SCENES, scene], variables))
            for rank in ranks:
                self.assertEqual(rank.finish(), 0, rank.errors())
        finally:
            for rank in ranks:
                rank.close()

    def test_alone(self):
        self.run_ranks("dropped,again", [{}])

    def test_slurm(self):
        port = str(job.free_port())
        common = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "localhost", "MASTER_PORT": port}
        self.run_ranks("messages,ddp", [common | {"SLURM_PROCID": str(rank)} for rank in range(2)])

    def test_torchruns_variables(self):
        common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(job.free_port())}
        self.run_ranks("messages,again", [common | {"RANK": str(rank)} for rank in range(2)])

    @job.needs_mpi
    def test_mpirun(self):
        self.run_under_mpirun("messages,ddp,again,dropped", nodes=0)

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
        variables = settings(PYTHONPATH=str(support.PACKAGE))
        rank = job.Rank(0, ["-B", "-c", script], variables)
        try:
            self.assertEqual(rank.finish(), 1)
            self.assertIn("init_process_group was given world_size=2, but the launcher says 1", rank.errors())
        finally:
            rank.close()


class Training:
    """The example under torchrun: reads what it says, and notes when its processes end."""

    def __init__(self, commands, folder, steps):
        words = [EXAMPLE, "--checkpoints", folder, "--steps", str(steps), "--every", "50"]
        self.losses = {}
        self.begins = []
        self.lines = []
        self.noticed = {}  # When the first exception that names a lost rank came, by agent.
        self._processes = {}  # of this start, by rank
        self._changed = threading.Condition()
        # The agent kills a frozen rank after this time, in seconds.
        variables = settings(PYTHONPATH=str(support.PACKAGE), TORCH_ELASTIC_SHUTDOWN_TIMEOUT="1")
        if len(commands) > 1:
            del variables["UCX_NET_DEVICES"]  # It is Kolo that finds the interface.
            variables["KOLO_CLUSTER"] = os.environ["KOLO_CLUSTER"]
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
                if "PeerLostError" in line:
                    self.noticed.setdefault(agent, time.monotonic())
                self._note(line)
                self._changed.notify_all()

    def _note(self, line):
        self.lines.append(line)
        # What ranks say at once may stand in one line.
        for rank, process, step in re.findall(r"rank (\d+), process (\d+): from step (\d+)", line):
            self._processes[int(rank)] = int(process)
            self.begins.append(int(step))
        for step, loss in re.findall(r"step (\d+): loss ([-+.e\d]+)", line):
            self.losses.setdefault(int(step), set()).add(loss)

    def await_step(self, step):
        with self._changed:
            if not self._changed.wait_for(lambda: step in self.losses, job.PATIENCE):
                raise AssertionError(f"no step {step}:\n{self}")

    def process(self, rank):
        return self._processes[rank]

    def finish(self):
        """Waits for the end of all; returns the exit statuses of the agents."""
        statuses = [agent.wait(3 * job.PATIENCE) for agent in self._agents]
        for reader, agent in zip(self._readers, self._agents):
            reader.join()
            agent.stdout.close()
        return statuses

    def close(self):
        """Ends what is left of it after a failure; a cluster ends its own processes."""
        for agent in self._agents:
            if agent.poll() is None:
                agent.kill()
        if len(self._agents) == 1:
            for process in self._processes.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def __str__(self):
        steps = f"{len(self.losses)} steps, begun at {self.begins}\n"
        return steps + "".join(line for line in self.lines if not line.startswith("step "))


class Elastic(unittest.TestCase):
    """Survivors of a lost rank end by themselves, and torchrun starts all ranks again from the last checkpoint."""

    STEPS = 400

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        training = Training(cls.torchrun(), f"{cls.folder.name}/undisturbed", cls.STEPS)
        cls.expected = training.losses
        assert training.finish() == [0], training
        assert len(cls.expected) == cls.STEPS, training

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @staticmethod
    def torchrun():
        run = [sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        return [[*run, "--max-restarts", "3"]]

    def check(self, training, begun_at_least):
        statuses = training.finish()
        self.assertEqual(statuses, [0] * len(statuses), training)
        self.assertEqual(training.losses, self.expected, training)
        self.assertGreaterEqual(len(training.begins), 4, training)
        self.assertGreaterEqual(min(training.begins[2:]), begun_at_least, training)
        self.assertIn("PeerLostError", "".join(training.lines))

    def lose(self, lost, number):
        training = Training(self.torchrun(), f"{self.folder.name}/{number.name}{lost}", self.STEPS)
        self.addCleanup(training.close)
        training.await_step(70)
        begun = time.monotonic()
        os.kill(training.process(lost), number)
        self.check(training, begun_at_least=50)
        for noticed in training.noticed.values():
            self.assertLess(noticed - begun, PROMISED_S, training)
        self.assertRegex("".join(training.lines), rf"PeerLostError: .*rank {lost}\b")

    def test_a_rank_that_is_killed(self):
        self.lose(1, signal.SIGKILL)

    def test_rank_0_is_killed(self):
        self.lose(0, signal.SIGKILL)

    def test_a_rank_that_freezes(self):
        self.lose(1, signal.SIGSTOP)


@job.needs_mpi
@job.needs_ucx
class CutLink(unittest.TestCase):
    """Two hosts with an agent of torchrun each, of which the first has the store. Kolo finds the interface."""

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
        run += ["--rdzv-endpoint", f"{first}:29400", "--max-restarts", "3"]
        commands = [[CLUSTER, "exec", host, "--", sys.executable, "-B", *run] for host in range(2)]
        with tempfile.TemporaryDirectory() as folder:
            training = Training(commands, folder, self.STEPS)
            self.addCleanup(training.close)
            training.await_step(70)
            begun = time.monotonic()
            # A bucket that holds no packet lets none pass, and nobody is told.
            self.on_all_hosts("tc qdisc replace dev eth0 root tbf rate 8bit burst 10 limit 10")
            statuses = training.finish()
        # The agent that has no store any more gives up, and may end its rank first. The other one goes on alone.
        self.assertEqual(statuses[0], 0, training)
        self.assertLess(training.noticed[0] - begun, PROMISED_S, training)
        self.assertEqual(sorted(training.losses), list(range(self.STEPS)), training)
        self.assertEqual(training.begins[:2], [0, 0], training)
        self.assertEqual(len(training.begins), 3, training)
        self.assertGreaterEqual(training.begins[2], 50, training)


if __name__ == "__main__":
    job.main()
