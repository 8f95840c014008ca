"""Bytes as text that fits into metadata of a model: compressed, and read back within bounds."""

from __future__ import annotations

import base64
import zlib


def packed(data: bytes) -> str:
    """The bytes as a short text of printable characters."""
    return base64.b85encode(zlib.compress(data, 9)).decode()


def unpacked(text: str, most: int) -> bytes:
    """The bytes that :func:`packed` was given.

    Args:
        text: The text, which is not trusted.
        most: Bytes that the caller accepts.

    Raises:
        ValueError: The text has another form, or represents more bytes.
    """
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(base64.b85decode(text), most)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not inflater.eof:
        raise ValueError("the end is missing")
    return data
