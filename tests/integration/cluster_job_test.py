#!/usr/bin/env -S python3 -B
"""Tests jobs on hosts with separate networks and shared memory, over links of a given rate: sums
are exact, and a repeated job has the same bits. Skipped where scripts/cluster cannot work."""

import os
import subprocess
import sys
import unittest

import job

CLUSTER = job.ROOT / "scripts" / "cluster"


class Cluster(unittest.TestCase):
    def up(self, hosts, rate):
        subprocess.run([CLUSTER, "up", str(hosts), rate, "--ttl", "300"], check=True, stdout=subprocess.DEVNULL)

    def check(self, hosts, per_host, calls):
        self.up(hosts, "1gbit")
        ranks = hosts * per_host
        for call in calls:
            with self.subTest(hosts=hosts, per_host=per_host, call=call):
                # Measured costs could choose another algorithm in the second run.
                runs = (self.run_job(call, ranks, per_host, calibrate="off") for _ in range(2))
                digests = {run.digest(ranks, hosts) for run in runs}
                self.assertEqual(len(digests), 1)

    def run_job(self, call, ranks, per_host, **settings):
        words = [CLUSTER, "run", "-np", ranks, "--ppn", per_host, "--timeout", job.PATIENCE, "--"]
        cluster = os.environ["KOLO_CLUSTER"]
        return job.run_command([*words, job.PROGRAM, call, 4], cluster=cluster, **settings)

    def on(self, host, command):
        subprocess.run([CLUSTER, "exec", str(host), "--", "sh", "-ec", command], check=True)

    def run_without_launcher(self, hosts, log_level="info"):
        """Starts one rank per host, without options that name an interface."""
        first = f"{os.environ['KOLO_CLUSTER']}0"
        start = (
            f"RANK=$HOST_INDEX WORLD_SIZE={hosts} MASTER_ADDR={first} MASTER_PORT=29500 "
            f"exec {job.PROGRAM} all_reduce 4"
        )
        cluster = os.environ["KOLO_CLUSTER"]
        words = [CLUSTER, "exec", "all", "--", "sh", "-c", start]
        return job.run_command(words, cluster=cluster, calibrate="off", log_level=log_level)

    def test_the_interface_that_reaches_the_other_host(self):
        self.up(2, "1gbit")
        # Each host has a private network, with addresses as if all were in one network.
        self.on("all", "ip link add aux0 type veth peer name aux1; ip link set aux1 up; "
                       "ip addr add 10.99.0.$((HOST_INDEX + 1))/24 dev aux0; ip link set aux0 up")
        outcome = self.run_without_launcher(2)
        outcome.digest(2, 2)
        for host in range(2):
            self.assertIn(f"the network between nodes is eth0 10.77.0.{host + 1}", outcome.errors)
        # By default, rank 0 announces its interface.
        outcome = self.run_without_launcher(2, log_level="warn")
        name = os.environ["KOLO_CLUSTER"]
        self.assertEqual(outcome.errors, f"kolo: rank 0 (node {name}0): the network between nodes is eth0 10.77.0.1\n")

    def test_hosts_that_do_not_reach_each_other_are_named(self):
        self.up(3, "1gbit")
        self.on(1, "ip route add unreachable 10.77.0.3")
        outcome = self.run_without_launcher(3)
        self.assertEqual(outcome.statuses, [job.IO], outcome)
        name = os.environ["KOLO_CLUSTER"]
        pairs = outcome.find(rf"error {job.IO} .*(rank 1 on {name}1 and rank 2 on {name}2 do not reach each other .*)")
        self.assertEqual(len(pairs), 3, outcome)
        why = "(to rank 2: 10.77.0.3: No route to host; to rank 1: 10.77.0.2: no answer in time)"
        self.assertTrue(all(why in pair for pair in pairs), outcome)

    def tearDown(self):
        subprocess.run([CLUSTER, "down"], check=True)

    def test_two_hosts_with_two_ranks_each(self):
        self.check(hosts=2, per_host=2, calls=("all_reduce", "gradients"))

    def test_four_hosts(self):
        self.check(hosts=4, per_host=1, calls=("gradients",))


if __name__ == "__main__":
    os.environ["KOLO_CLUSTER"] = f"jobs{os.getpid()}"
    if not (job.HAS_MPI and job.HAS_UCX):
        print("skipped: built without MPI or UCX")
        sys.exit(77)
    status = subprocess.run([CLUSTER, "check"], check=False).returncode
    if status:
        sys.exit(status)
    job.main()
