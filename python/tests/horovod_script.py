"""A training script as people write it for Horovod; only its import is another one. `horovod_test.py` starts it.

    horovod_script.py [--one-process RANKS]

It prints the losses. With --one-process it trains on the batches of so many ranks at once, without Horovod's calls.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

import kolo.horovod as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--one-process", type=int, default=0, metavar="RANKS")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--steps", type=int, default=12)
args = parser.parse_args()

hvd.init()
ranks = args.one_process or hvd.size()

torch.manual_seed(7)
features = torch.randn(args.steps * args.batch_size * ranks, 20)
labels = (features @ torch.randn(20, 5)).argmax(1)
dataset = torch.utils.data.TensorDataset(features, labels)
if args.one_process:
    # The joined batches: that of step s has sample ranks * i + r as sample i of rank r.
    loader = torch.utils.data.DataLoader(dataset, batch_size=args.batch_size * ranks)
else:
    sampler = torch.utils.data.distributed.DistributedSampler(
        dataset, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False
    )
    loader = torch.utils.data.DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)

torch.manual_seed(100 + hvd.rank())  # Ranks begin with weights of their own, until rank 0 shares its.
model = nn.Sequential(nn.Linear(20, 50), nn.Tanh(), nn.Linear(50, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * ranks, momentum=0.9)

if not args.one_process:
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=hvd.Compression.none, op=hvd.Average
    )

for features, labels in loader:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(features), labels)
    loss.backward()
    optimizer.step()
    average = loss.detach() if args.one_process else hvd.allreduce(loss, name="loss")
    if hvd.rank() == 0:
        print(f"loss {average.item():.9f}", flush=True)

if hvd.local_rank() == 0:
    print(f"the first of {hvd.local_size()} ranks here is done")
hvd.shutdown()
