"""Backups: rows first, as they are at one moment, and then the contents that they refer to.

made = await create_backup("backup.tar", data_dir=...)
restored = await restore_backup("backup.tar", data_dir="an empty folder")
"""
