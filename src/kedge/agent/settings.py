"""The few numbers of the agent that a program may want to change."""

import math
from dataclasses import dataclass, fields

from kedge.domain.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Numbers with sensible defaults. Times are in seconds."""

    retries: int = 10
    """How often a model request that failed for a passing reason is repeated."""
    retry_delay: float = 2.0
    """How long to wait before the first retry; each further wait is twice as long."""
    retry_delay_limit: float = 30.0
    """The longest wait that is not asked for by the provider."""
    retry_after_limit: float = 600.0
    """If a provider asks for a longer wait than this, the request counts as refused."""
    broken_retries: int = 2
    """How often an answer is requested again that broke off, was empty or made no sense; each may
    have been paid for."""
    silent_retries: int = 1
    """How often a request is repeated after the model sent nothing for the provider's time
    limit."""
    retry_time: float = 900.0
    """There is no further attempt after so much time of one step was spent on silence that ended in
    a failure, and on waits between attempts; the work of tools, questions to users and a model that
    sends text do not count."""
    steps: int = 1000
    """How many steps a turn may have, unless its agent's configuration says otherwise."""
    repeats: int = 3
    """The same call of the same tool this often in a row needs a permission to go on."""
    subagent_timeout: float = 600.0
    """A subtask of which nothing was heard for so long is stopped, unless a person is asked or the
    configuration says otherwise."""

    history_bytes: int = 128 * 1024 * 1024
    """How much of conversations is cached in memory between prompts, in all sessions together."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidInput(f"the setting {each.name} must be a number", field=each.name)
            if not 0 <= value < math.inf:
                raise InvalidInput(f"the setting {each.name} must not be negative", field=each.name)
