from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, final

from starlark_engine.gpu import GPUInfo

@final
class PolicyEngine:
    """Loads policies, and says whether a GPU may be given out."""

    def __new__(cls, policy_dir: str | PathLike[str] | None = None) -> PolicyEngine: ...
    def load_policy(self, path: str | PathLike[str]) -> bool:
        """Load a policy: the path as it is, or inside the folder."""

    def load_all_policies(self) -> int:
        """Load every policy of the folder, and say how many could be."""

    def evaluate_allocation(self, gpu: GPUInfo, requirements: dict[str, Any]) -> bool:
        """Whether a GPU may be given out: some pool has it, and it is what is asked for."""

    def get_recommended_gpus(self, gpus: Iterable[GPUInfo], requirements: dict[str, Any]) -> list[GPUInfo]:
        """Those that may be given out, the best first; among equals as they came."""

    @property
    def errors(self) -> list[str]:
        """What was wrong with policies so far, each with its place."""

    @property
    def pools(self) -> dict[str, dict[str, Any]]:
        """The pools that were registered, by name."""

    @property
    def schedules(self) -> dict[str, dict[str, Any]]:
        """The rulesets that were registered, by name."""

@final
class Program:
    """Policies that were compiled."""

    def __new__(cls, files: Mapping[str, str]) -> Program: ...
    @staticmethod
    def from_dir(path: str | PathLike[str]) -> Program:
        """Compile the policies of a folder."""

    @property
    def functions(self) -> list[str]:
        """The functions that can be called."""

    @property
    def rules(self) -> dict[str, dict[str, dict[str, Any]]]:
        """What the policies registered: `pools` and `schedules`."""

    def call(self, function: str, /, *args: Any) -> Any:
        """Call a function with these values, and give its answer."""

def star(words: Sequence[str]) -> int:
    """Do what the words of a command line say, and give the exit code."""
