"""The version of this distribution, for the build and for `kedge.__version__`; nothing else."""

__version__ = "0.1.0"
