"""The offline model: it follows commands in the prompt, with no network and no key."""

from kedge.model.offline.commands import offline_info, offline_provider
from kedge.model.offline.model import OfflineModel

__all__ = ["OfflineModel", "offline_info", "offline_provider"]
