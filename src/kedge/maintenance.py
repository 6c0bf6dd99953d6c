"""What operators do with the data of kedge: examine and repair it, free space, back it up and
restore it. Each function works on a data folder, beside running kedges."""

from kedge.engine.backup.archive import BackedUpFile, Manifest, read_manifest
from kedge.engine.backup.create import create_backup
from kedge.engine.backup.restore import Restored, restore_backup
from kedge.engine.collection import (
    Held,
    ProjectCollected,
    ProjectSpace,
    collect_space,
    survey_space,
)
from kedge.engine.doctor.doctor import examine
from kedge.engine.doctor.findings import (
    KINDS,
    Finding,
    FindingKind,
    Progress,
    Report,
    Severity,
)
from kedge.engine.doctor.machine import Limits
from kedge.engine.doctor.repairs import Outcome, Repair, planned, repair

__all__ = [
    "KINDS",
    "BackedUpFile",
    "Finding",
    "FindingKind",
    "Held",
    "Limits",
    "Manifest",
    "Outcome",
    "Progress",
    "ProjectCollected",
    "ProjectSpace",
    "Repair",
    "Report",
    "Restored",
    "Severity",
    "collect_space",
    "create_backup",
    "examine",
    "planned",
    "read_manifest",
    "repair",
    "restore_backup",
    "survey_space",
]
