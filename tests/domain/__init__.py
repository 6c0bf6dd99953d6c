"""Tests of the values; nothing here touches a disk, a database or a network."""
