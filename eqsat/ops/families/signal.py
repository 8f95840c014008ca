"""Signal processing: Fourier transforms and the windows that go with them; evaluated by ``onnx.reference``."""

from __future__ import annotations

from eqsat.ops.registry import declare

# ---- declarations ----------------------------------------------------------------------------------

declare("BlackmanWindow", "HammingWindow", "HannWindow", shaped_by=(0,))
declare("DFT", shaped_by=(1, 2))
declare("MelWeightMatrix", shaped_by=(0, 1))
declare("STFT", shaped_by=(1, 3))
