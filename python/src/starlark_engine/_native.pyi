from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, final

from starlark_engine.gpu import GPUInfo

@final
class PolicyEngine:
    """Loads policies and decides whether a GPU may be allocated."""

    def __new__(cls, policy_dir: str | PathLike[str] | None = None) -> PolicyEngine: ...
    def load_policy(self, path: str | PathLike[str]) -> bool:
        """Load a policy by its path, or by its path inside the folder. False if it does not load."""

    def load_all_policies(self) -> int:
        """Load every policy of the folder, and return the number that loaded."""

    def evaluate_allocation(self, gpu: GPUInfo, requirements: dict[str, Any]) -> bool:
        """Whether the GPU may be allocated: it is in a pool and meets the requirements."""

    def get_recommended_gpus(self, gpus: Iterable[GPUInfo], requirements: dict[str, Any]) -> list[GPUInfo]:
        """The GPUs that may be allocated, best score first; equal scores keep their order."""

    @property
    def errors(self) -> list[str]:
        """The errors of all policies that did not load, each with its position."""

    @property
    def pools(self) -> dict[str, dict[str, Any]]:
        """The registered pools, by name."""

    @property
    def schedules(self) -> dict[str, dict[str, Any]]:
        """The registered rulesets, by name."""

@final
class Program:
    """Compiled policies."""

    def __new__(cls, files: Mapping[str, str]) -> Program: ...
    @staticmethod
    def from_dir(path: str | PathLike[str]) -> Program:
        """Compile the policies of a folder."""

    @property
    def functions(self) -> list[str]:
        """The names of the callable functions."""

    @property
    def rules(self) -> dict[str, dict[str, dict[str, Any]]]:
        """What the policies registered: `pools` and `schedules`."""

    def call(self, function: str, /, *args: Any) -> Any:
        """Call a function with these arguments, and return its answer."""

def star(words: Sequence[str]) -> int:
    """Run a command line of `star`, program name first, and return the exit code."""
