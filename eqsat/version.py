"""The version, in a file that every room can import."""

__version__ = "0.2.0"
