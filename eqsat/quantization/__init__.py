"""Quantization: integers for the numbers in a network, and their cost in accuracy.

- ``data`` reads calibration samples; ``histogram`` and ``calibrate`` gather statistics of every float tensor.
- ``ranges`` chooses ranges from them by ``methods`` (``entropy``, ``squared_error``); ``quantizer`` makes scales and
  zero points.
- ``operators`` and ``scheme`` decide which tensors are quantized; ``insert`` writes the decision into a model as QDQ
  pairs.
- ``noise`` measures the effect of each tensor on the outputs; ``budget`` makes programs in the e-graph pay for it.
- ``pipeline`` composes all of this: ``prepare`` folds, ``schemes`` chooses a method, ``within_budget`` extracts,
  measures and tightens until the budget is kept.
"""
