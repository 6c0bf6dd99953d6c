"""The few numbers of the agent that a program may want to change."""

import math
from dataclasses import dataclass, fields

from kedge.domain.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Numbers with sensible defaults. Times are in seconds."""

    retries: int = 10
    """How often a model request that failed for a passing reason is made again."""
    retry_delay: float = 2.0
    """How long to wait before the first retry; each further wait is twice as long."""
    retry_delay_limit: float = 30.0
    """The longest wait that is not asked for by the provider."""
    retry_after_limit: float = 600.0
    """A provider that asks for a longer wait than this is taken to have refused."""
    broken_retries: int = 2
    """How often an answer that broke off, was empty or made no sense is asked for again; each of
    them may have been paid for."""
    silent_retries: int = 1
    """How often a model is asked again that said nothing for as long as its provider may."""
    retry_time: float = 900.0
    """When so much time of one step went by with silence that ended in a failure, and with waits
    between attempts, there is no further one; the work of tools, questions to people and a model
    that speaks do not count."""
    steps: int = 1000
    """How many steps a turn may have, unless the configuration of its agent says."""
    repeats: int = 3
    """The same call of the same tool this often in a row needs a permission to go on."""

    history_bytes: int = 128 * 1024 * 1024
    """How much of conversations is kept in memory between prompts, in all sessions together."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidInput(f"the setting {each.name} must be a number", field=each.name)
            if not 0 <= value < math.inf:
                raise InvalidInput(f"the setting {each.name} must not be negative", field=each.name)
