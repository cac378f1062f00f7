#!/usr/bin/env -S python3 -B
"""Tests errors as exceptions, waits that signals interrupt, handles, and the search for the library, without a job."""

import ctypes
import gc
import itertools
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import support

import kolo
from kolo import _errors, _handle, _header, _library, _runtime, _wait


class Classes(unittest.TestCase):
    def test_each_status_has_a_class_of_its_own(self):
        statuses = set(kolo.Status) - {kolo.Status.OK}
        for status in statuses:
            self.assertEqual(_errors._CLASSES[status].status, status)
        self.assertEqual(len(set(_errors._CLASSES.values())), len(statuses))
        for status in statuses:
            first = status.name.split("_")[0].rstrip("S")[:4].lower()
            self.assertTrue(_errors._CLASSES[status].__name__.lower().startswith(first.replace("time", "dead")), status)

    def test_they_are_the_built_in_ones_too(self):
        for error, built_in in (
            (kolo.UsageError, ValueError),
            (kolo.ConfigError, ValueError),
            (kolo.PeerLostError, ConnectionError),
            (kolo.DeadlineError, TimeoutError),
            (kolo.StallError, TimeoutError),
            (kolo.ResourceError, MemoryError),
            (kolo.IoError, OSError),
        ):
            self.assertTrue(issubclass(error, built_in) and issubclass(error, kolo.KoloError))

    def test_text_and_fields(self):
        error = kolo.PeerLostError("rank 0: rank 1 died", rank=0, peer=1, verb="agree", tensor="x", what="rank 1 died")
        self.assertEqual(str(error), "rank 0: rank 1 died")
        self.assertEqual((error.rank, error.peer, error.verb, error.tensor), (0, 1, "agree", "x"))
        self.assertEqual((error.what, error.group, error.status), ("rank 1 died", "", kolo.Status.PEER_LOST))
        self.assertIsNone(kolo.UsageError("wrong").rank)

    def test_they_can_be_sent_to_another_process(self):
        for kind in (kolo.MismatchError, kolo.DeadlineError, kolo.IoError):
            copy = pickle.loads(pickle.dumps(kind("text", rank=3, tensor="x")))
            self.assertIs(type(copy), kind)
            self.assertEqual((str(copy), copy.rank, copy.tensor), ("text", 3, "x"))


class Interrupt(Exception):
    pass


class Waits(unittest.TestCase):
    def setUp(self):
        self.steps = []

    def step(self, over_after):
        def step(timeout_ms):
            self.steps.append(timeout_ms)
            return len(self.steps) > over_after

        return step

    def wait(self, limit, default_ms, over_after=10**9):
        _wait.wait(self.step(over_after), limit, default_ms, lambda: _wait.PendingCall("'grad 7'", rank=3, group="'pairs' [1, 5]", peer=1))

    def test_the_main_thread_waits_in_slices(self):
        self.wait(None, 600_000, over_after=3)
        self.assertEqual(self.steps, [_wait.SLICE_MS] * 4)

    def test_another_thread_leaves_the_limit_to_the_library(self):
        thread = threading.Thread(target=self.wait, args=(None, 600_000, 0))
        thread.start()
        thread.join()
        self.assertEqual(self.steps, [-1])

    def test_a_wait_without_a_limit_goes_on(self):
        self.wait(None, 0, over_after=5)
        self.assertEqual(self.steps, [_wait.SLICE_MS] * 6)

    def test_any_limit_is_a_number_of_steps(self):
        for limit in (1e18, float("inf")):
            self.steps.clear()
            thread = threading.Thread(target=self.wait, args=(limit, 0, 2))
            thread.start()
            thread.join()
            self.assertEqual(len(self.steps), 3)
            self.assertLess(max(self.steps), 2**31)

    def test_a_limit_that_is_past_asks_once(self):
        for limit in (0, -1):
            self.steps.clear()
            with self.assertRaises(kolo.DeadlineError):
                self.wait(limit, 0)
            self.assertEqual(self.steps, [0])
        self.steps.clear()
        self.wait(0, 0, over_after=0)

    def test_the_error_names_what_and_which_limit(self):
        with self.assertRaisesRegex(kolo.DeadlineError, "'grad 7': no result within the timeout of 1 ms .*operation_timeout") as caught:
            self.wait(None, 1)
        error = caught.exception
        self.assertEqual((error.tensor, error.rank, error.group, error.peer), ("'grad 7'", 3, "'pairs' [1, 5]", 1))
        self.assertTrue(str(error).startswith("group 'pairs' [1, 5]: rank 3: "), error)
        with self.assertRaises(TimeoutError) as caught:
            self.wait(0.001, 0)
        self.assertNotIn("operation_timeout", str(caught.exception))

    def test_a_call_that_raises_does_so_here(self):
        with self.assertRaises(ZeroDivisionError):
            _wait.call(lambda: 1 // 0)

    def test_a_signal_ends_a_call_that_blocks(self):
        def interrupt(*_):
            raise Interrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        released = threading.Event()
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with self.assertRaises(Interrupt):
                _wait.call(lambda: int(not released.wait(60)))
        finally:
            signal.signal(signal.SIGALRM, before)
            released.set()

    def test_a_handler_that_raises_nothing_ends_no_call(self):
        seen = []
        before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            _wait.call(lambda: 0 if _poll(lambda: seen) else 1)
        finally:
            signal.signal(signal.SIGALRM, before)


def _poll(condition):
    turn = threading.Event()
    for _ in range(6000):
        if condition():
            return True
        turn.wait(0.01)
    return False


class Handles(unittest.TestCase):
    def test_they_are_released_after_what_was_made_of_them(self):
        class Thing:
            def __init__(self, owned):
                self.owned = owned

            def __del__(self):
                self.owned.drop()

        for order in itertools.permutations(range(3)):
            released = []
            job = _handle.Owned("job", released.append)
            group = _handle.Owned("group", released.append, made_of=job)
            gradients = _handle.Owned("gradients", released.append, made_of=group)
            owned = [job, group, gradients]
            ring = [Thing(owned[i]) for i in order]
            ring.append(ring)
            del ring
            gc.collect()
            self.assertEqual(released, ["gradients", "group", "job"])


    def test_what_is_dropped_after_the_end_of_a_job_goes_at_once(self):
        with unittest.mock.patch.object(_handle, "library"):
            handle, released = _handle.Handle(None, 0), []
        handle.let_go()
        handle.keep(_handle.Owned("gradients", released.append), [])
        self.assertEqual(released, ["gradients"])
        handle.library.kolo_ticket_test.side_effect = lambda _, done: setattr(done._obj, "value", 1)
        handle.park("ticket", [])
        handle.library.kolo_ticket_release.assert_called_once_with("ticket")

    def test_only_a_receive_is_cancelled(self):
        """The library would refuse it for another operation, and replace the error that this thread may be reading."""
        handle = unittest.mock.Mock()
        for finish, is_cancelled in ((lambda _: None, False), (_wait.received, True)):
            ticket = _wait.Ticket(handle, [], finish, None)
            ticket._ticket, ticket._was_given_up = ctypes.c_void_p(1), True
            del ticket
            self.assertEqual(handle.library.kolo_ticket_cancel.called, is_cancelled)


class Stores(unittest.TestCase):
    def test_exceptions_stay_on_this_side(self):
        class Broken:
            def set(self, key, value):
                raise KeyboardInterrupt

            def get(self, key, timeout):
                self.timeout = timeout
                return "text"  # Not bytes.

        store = Broken()
        callbacks = _runtime.Callbacks(store)
        self.assertEqual(callbacks.struct.set(None, b"key", None, 0), 1)
        self.assertIsInstance(callbacks.error, KeyboardInterrupt)
        value, size = ctypes.c_void_p(), ctypes.c_size_t()
        arguments = (ctypes.byref(value), ctypes.byref(size))
        self.assertEqual(callbacks.struct.get(None, b"key", 1000, *arguments), 1)
        self.assertIsInstance(callbacks.error, TypeError)
        self.assertEqual(store.timeout, 1.0)


class Library(unittest.TestCase):
    def load(self, **variables):
        """Opens a job in a Python without a source tree around the package, and returns its output."""
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "site" / "kolo"
            copy.mkdir(parents=True)
            for source in (support.PACKAGE / "kolo").glob("*.py"):
                (copy / source.name).write_bytes(source.read_bytes())
            shutil.copytree(_header.INCLUDE / "kolo", copy / "include" / "kolo")  # As in a wheel.
            environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(copy.parent), **variables}
            command = [sys.executable, "-B", "-c", "import kolo; kolo.open()"]
            done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
            return done.stderr

    def test_a_library_that_is_nowhere(self):
        try:
            _library.ctypes.CDLL(_library.NAME)
        except OSError:
            said = self.load()
            self.assertIn(f"ImportError: {_library.NAME} was not found anywhere; KOLO_LIBRARY may name it", said)
            self.assertIn(f"kolo/{_library.NAME}: no such file", said)
        else:
            self.skipTest("the loader of this machine finds an installed Kolo")

    def test_a_wrong_path(self):
        said = self.load(KOLO_LIBRARY="/nonexistent/libkolo.so")
        self.assertIn("the library that KOLO_LIBRARY names cannot be loaded", said)
        self.assertIn("/nonexistent/libkolo.so", said)

    def test_a_library_that_is_another(self):
        said = self.load(KOLO_LIBRARY="libc.so.6")
        self.assertIn("libc.so.6 does not fit this package", said)


if __name__ == "__main__":
    support.main()
