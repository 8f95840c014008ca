"""Quantization: which numbers flow through a network, which integers stand for them, and what that costs in accuracy.

``data`` reads calibration samples, ``histogram`` and ``calibrate`` gather statistics of every float tensor, ``ranges``
chooses ranges from them (``entropy``, ``squared_error``), ``quantizer`` makes scales and zero points of ranges.
"""
