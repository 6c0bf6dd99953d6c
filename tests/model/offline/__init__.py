"""Tests of kedge.model.offline."""
