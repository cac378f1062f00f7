"""Elastic training as written for Horovod, except for the import. `horovod_test.py` starts it.

    torchrun --max-restarts 2 horovod_elastic.py [--kill-at STEP]

With --kill-at rank 1 is killed once, in that step.
"""

import argparse
import os
import signal

import torch
from torch import nn

import kolo.horovod as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batches", type=int, default=8)
parser.add_argument("--kill-at", type=int, default=-1)
args = parser.parse_args()

hvd.init()
torch.manual_seed(hvd.rank())
model = nn.Sequential(nn.Linear(20, 50), nn.Tanh(), nn.Linear(50, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


def say(line):
    """Writes the line with its end in one call: torchrun's ranks share a pipe, and do not buffer."""
    os.write(1, f"{line}\n".encode())


def samples_of(step):
    return torch.randn(16, 20, generator=torch.Generator().manual_seed(2 * step + hvd.rank()))


@hvd.elastic.run
def train(state):
    say(f"rank {hvd.rank()} from step {state.epoch * args.batches + state.batch}")
    for state.epoch in range(state.epoch, args.epochs):
        for state.batch in range(state.batch, args.batches):
            step = state.epoch * args.batches + state.batch
            if state.batch % 4 == 0:
                state.commit()
            if step == args.kill_at and hvd.rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            loss = model(samples_of(step)).square().mean()
            loss.backward()
            optimizer.step()
            if hvd.rank() == 0:
                say(f"step {step}: loss {loss.item():.9g}")
        state.batch = 0


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0, batch=0)
state.register_reset_callbacks([lambda: say(f"rank {hvd.rank()} goes on")])
train(state)
hvd.shutdown()
