"""What jobs leave behind on a machine of their own: processes, files in /dev/shm and /tmp, sockets."""

import pathlib
import tempfile
import unittest

import job


def traces():
    """What this machine holds now."""
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
            # 06 is TIME_WAIT: what the protocol asks the kernel to keep of a closed connection.
            if not line.split()[3] == "06" or table == "unix":
                sockets.add(f"socket {table} {line.strip()}")
    return processes | files | sockets


class LeavesNothing(unittest.TestCase):
    """What a test starts is gone when it calls `check_nothing_left`."""

    def setUp(self):
        self.before = traces()

    def check_nothing_left(self):
        job.wait_until(lambda: not traces() - self.before, "nothing is left: " + str(traces() - self.before))
