"""A client for muster, a GPU scheduler: sync and async, with only the standard library.

from muster import Client

client = Client()
job = client.submit(["python", "train.py"], gpus=2)
print(client.wait(job).state)
"""

from pkgutil import extend_path

# Stubs generated from the definitions of the gRPC API are `muster.v1`, in a folder of their own.
__path__ = extend_path(__path__, __name__)

from muster.async_client import AsyncClient
from muster.client import Client
from muster.error import MusterError
from muster.objects import Ahead, Done, ExpectedStart, Job, Reason, SoonerWith, Submitted, Task, WaitNote, Why

__all__ = [
    "Ahead",
    "AsyncClient",
    "Client",
    "Done",
    "ExpectedStart",
    "Job",
    "MusterError",
    "Reason",
    "SoonerWith",
    "Submitted",
    "Task",
    "WaitNote",
    "Why",
]
