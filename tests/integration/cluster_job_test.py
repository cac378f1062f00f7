#!/usr/bin/env -S python3 -B
"""Jobs on hosts with their own network and shared memory, over links of a given rate: exact sums, and the same
bits when a job is repeated. Skipped where scripts/cluster cannot work."""

import os
import subprocess
import sys
import unittest

import job

CLUSTER = job.ROOT / "scripts" / "cluster"


class Cluster(unittest.TestCase):
    def up(self, hosts, rate):
        subprocess.run([CLUSTER, "up", str(hosts), rate, "--ttl", "300"], check=True, stdout=subprocess.DEVNULL)

    def check(self, hosts, per_host):
        self.up(hosts, "1gbit")
        ranks = hosts * per_host
        for call in ("all_reduce", "gradients"):
            with self.subTest(hosts=hosts, per_host=per_host, call=call):
                # Measured costs may choose another algorithm in the second run.
                runs = (self.run_job(call, ranks, per_host, calibrate="off") for _ in range(2))
                digests = {run.digest(ranks, hosts) for run in runs}
                self.assertEqual(len(digests), 1)

    def run_job(self, call, ranks, per_host, **settings):
        words = [CLUSTER, "run", "-np", ranks, "--ppn", per_host, "--timeout", job.PATIENCE, "--"]
        cluster = os.environ["KOLO_CLUSTER"]
        return job.run_command([*words, job.PROGRAM, call, 4], cluster=cluster, **settings)

    def tearDown(self):
        subprocess.run([CLUSTER, "down"], check=True)

    def test_two_hosts(self):
        self.check(hosts=2, per_host=1)

    def test_two_hosts_with_two_ranks_each(self):
        self.check(hosts=2, per_host=2)

    def test_four_hosts(self):
        self.check(hosts=4, per_host=1)


if __name__ == "__main__":
    os.environ["KOLO_CLUSTER"] = f"jobs{os.getpid()}"
    if not (job.HAS_MPI and job.HAS_UCX):
        print("skipped: built without MPI or UCX")
        sys.exit(77)
    status = subprocess.run([CLUSTER, "check"], check=False).returncode
    if status:
        sys.exit(status)
    job.main()
