#!/usr/bin/env -S python3 -B
"""Tests that an idle job costs nothing: in an idle second no thread of a rank wakes, makes a
system call or sends a packet. Runs in a network namespace, which sees only the job's packets."""

import collections
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import job

SETTLED_S = 1.5  # by then the work after the last collective is done, and strace is attached
STRACE_S = 2.0
COUNT_S = 5.0
COUNT_NETWORK_S = 22.0  # longer than the 20 s after which UCX would check its connections


def packets():
    """Returns the packets received so far, by interface. The loopback receives what it sends."""
    lines = pathlib.Path("/proc/net/dev").read_text().splitlines()[2:]
    return {line.split(":")[0].strip(): int(line.split(":")[1].split()[1]) for line in lines}


class Thread:
    def __init__(self, path):
        self.path = path
        self.number = int(path.name)
        self.name = (path / "comm").read_text().strip()

    def wakes(self):
        status = (self.path / "status").read_text()
        return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)


def threads_of(process):
    return [Thread(path) for path in sorted(pathlib.Path(f"/proc/{process.pid}/task").iterdir())]


def strace_works():
    if not shutil.which("strace"):
        return False
    with subprocess.Popen(["sleep", "60"]) as victim:
        try:
            tracer = subprocess.Popen(
                ["strace", "-p", str(victim.pid)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
            )
            attached = "attached" in tracer.stderr.readline()
            tracer.send_signal(signal.SIGINT)
            tracer.communicate()
            return attached
        finally:
            victim.kill()


def system_calls(ranks, seconds):
    """Returns the system calls that each rank began within `seconds`, by thread name and call."""
    with tempfile.TemporaryDirectory() as folder:
        names = {thread.number: thread.name for rank in ranks for thread in threads_of(rank.process)}
        tracers = [
            subprocess.Popen(
                ["strace", "-f", "-ttt", "-p", str(rank.process.pid), "-o", f"{folder}/{rank.rank}"],
                stderr=subprocess.DEVNULL,
            )
            for rank in ranks
        ]
        # strace interrupts waiting threads, so the first moments show only its own effects.
        time.sleep(SETTLED_S)
        began = time.time()
        time.sleep(seconds)
        for tracer in tracers:
            tracer.send_signal(signal.SIGINT)
            tracer.wait()
        calls = collections.Counter()
        for file in pathlib.Path(folder).iterdir():
            for line in file.read_text().splitlines():
                thread, moment, text = line.split(maxsplit=2)
                # Calls in progress when strace detached are printed as resumed or detached.
                if began <= float(moment) < began + seconds and not text.startswith(("<", "---")):
                    calls[f"{names[int(thread)]}: {text.split('(')[0]}"] += 1
        return calls


class Idle(unittest.TestCase):
    def check(self, nodes, seconds):
        with job.started(["idle"], nodes) as ranks:
            job.read_until(ranks, "idle")
            time.sleep(SETTLED_S)
            threads = [thread for rank in ranks for thread in threads_of(rank.process)]
            self.assertEqual([thread.name for thread in threads].count("kolo-engine"), len(ranks))

            wakes_before = [thread.wakes() for thread in threads]
            packets_before = packets()
            time.sleep(seconds)
            packets_after = packets()
            woken = {
                f"{thread.name} {thread.number}": thread.wakes() - before
                for thread, before in zip(threads, wakes_before)
                if thread.wakes() != before
            }
            sent = {name: packets_after[name] - count for name, count in packets_before.items()}
            calls = system_calls(ranks, STRACE_S) if strace_works() else None

            print(f"{len(ranks)} ranks on {len(nodes)} node(s), {len(threads)} threads:")
            print(f"  in {seconds:g} s: wakes {woken}, packets {sent}")
            if calls is not None:
                print(f"  in {STRACE_S:g} s more: system calls {dict(calls)}")
            self.assertEqual(woken, {})
            self.assertEqual(set(sent.values()), {0}, sent)
            if calls is None:
                self.skipTest("strace may not attach to processes here; only wakes and packets were counted")
            self.assertEqual(calls, {})

            for rank in ranks:
                rank.process.stdin.close()
                rank.process.stdin = None
            self.assertEqual([rank.finish() for rank in ranks], [0] * len(ranks))

    def test_one_node(self):
        self.check([2], COUNT_S)

    @job.needs_ucx
    def test_two_nodes(self):
        self.check([2, 2], COUNT_NETWORK_S)


if __name__ == "__main__":
    job.enter_private_machine()
    job.main()
