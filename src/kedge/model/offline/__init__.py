"""The offline model: it executes commands in the prompt, without a network or a key."""

from kedge.model.offline.commands import offline_info, offline_provider
from kedge.model.offline.model import OfflineModel

__all__ = ["OfflineModel", "offline_info", "offline_provider"]
