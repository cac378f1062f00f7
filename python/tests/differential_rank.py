"""One rank of differential_test.py: runs scenes one after another, and saves their results.

    differential_rank.py BACKEND FOLDER SCENE...    with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
"""

import os
import sys
import traceback
import zlib
from datetime import timedelta

import torch
import torch.distributed as dist

import differential_scenes  # noqa: F401
import differential_training_scenes  # noqa: F401
from differential_table import SCENES


def main():
    backend, folder, names = sys.argv[1], sys.argv[2], sys.argv[3:]
    if backend == "kolo":
        import kolo.torch  # noqa: F401
    dist.init_process_group(backend, timeout=timedelta(seconds=300))
    for name in names:
        print("begin", name, flush=True)
        torch.manual_seed(zlib.crc32(name.encode()))
        try:
            result = SCENES[name].call()
            torch.save(result, os.path.join(folder, f"{name}.{dist.get_rank()}"))
            dist.barrier()
        except BaseException:  # Other ranks may wait for this rank, so the test ends all ranks.
            traceback.print_exc()
            print("error", name, flush=True)
            os._exit(1)
        print("end", name, flush=True)
    dist.destroy_process_group()
    print("over", flush=True)


main()
