"""Quantization: which numbers flow through a network, which integers stand for them, and what that costs in accuracy.

- ``data`` reads calibration samples; ``histogram`` and ``calibrate`` gather statistics of every float tensor.
- ``ranges`` chooses ranges from them (``entropy``, ``squared_error``); ``quantizer`` makes scales and zero points.
- ``operators`` and ``scheme`` say which tensors are quantized; ``insert`` writes that into a model as QDQ pairs.
- ``noise`` measures what each of them does to the outputs; ``budget`` has programs pay for it in the e-graph.
- ``pipeline`` composes all of this: ``prepare`` folds, ``schemes`` chooses a method, ``within_budget`` extracts,
  measures and tightens until the budget is kept.
"""
