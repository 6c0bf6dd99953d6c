"""The offline model: it follows commands in the prompt, with no network and no key."""

from kedge.model.offline.answering import OfflineModel
from kedge.model.offline.info import offline_info, offline_provider

__all__ = ["OfflineModel", "offline_info", "offline_provider"]
