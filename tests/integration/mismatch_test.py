#!/usr/bin/env -S python3 -B
"""Ranks that disagree about a tensor all get the same error, which names rank, tensor and both values,
and go on with the next tensor."""

import unittest

import job

# What rank 1 submits and what the others do, as the error must quote it.
FIELDS = {
    "all_reduce": {
        "shape": ("'even': all_reduce float32 [11] sum", "'even': all_reduce float32 [10] sum"),
        "dtype": ("'even': all_reduce int32 [10] sum", "'even': all_reduce float32 [10] sum"),
        "op": ("'even': all_reduce float32 [10] max", "'even': all_reduce float32 [10] sum"),
        "name": ("'odd': all_reduce float32 [10] sum", "'even': all_reduce float32 [10] sum"),
    },
    "gradients": {
        "shape": ("'even': float32 [11, 2]", "'even': float32 [10, 2]"),
        "dtype": ("'even': int32 [10, 2]", "'even': float32 [10, 2]"),
        "op": ("max", "sum"),
        "name": ("'odd': float32 [10, 2]", "'even': float32 [10, 2]"),
    },
}


class Mismatch(unittest.TestCase):
    def check(self, nodes):
        count = sum(nodes)
        others = [rank for rank in range(count) if rank != 1]
        others_text = ("rank " if len(others) == 1 else "ranks ") + ", ".join(map(str, others))
        for call, fields in FIELDS.items():
            for field, (odd, even) in fields.items():
                with self.subTest(call=call, field=field, nodes=nodes):
                    outcome = job.run(["mismatch", call, field], nodes, mismatch_after=200)
                    outcome.digest(count, len(nodes))
                    texts = outcome.find(rf"refused with {job.MISMATCH}: (.*)")
                    self.assertEqual(len(texts), count, outcome)
                    self.assertEqual(len(set(texts)), 1, outcome)
                    for part in (odd, even, "rank 1", others_text):
                        self.assertIn(part, texts[0])

    def test_one_node(self):
        self.check([2])
        self.check([4])

    @job.needs_ucx
    def test_two_nodes(self):
        self.check([2, 2])


if __name__ == "__main__":
    job.main()
