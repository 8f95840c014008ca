"""Signal processing: Fourier transforms and the windows that go with them; evaluated by ``onnx.reference``."""

from __future__ import annotations

from eqsat.ops import counters as count
from eqsat.ops.need_by_parameters import need_fourier, need_mel_weights, need_short_fourier, need_window_function
from eqsat.ops.registry import declare
from eqsat.ops.traits import PARAMETRIC

# ---- declarations ----------------------------------------------------------------------------------

declare("BlackmanWindow", "HammingWindow", "HannWindow", traits=PARAMETRIC, shaped_by=(0,), need=need_window_function)
declare("DFT", traits=PARAMETRIC, shaped_by=(1, 2), macs=count.fourier, need=need_fourier)
declare("MelWeightMatrix", traits=PARAMETRIC, shaped_by=(0, 1), need=need_mel_weights)
declare("STFT", traits=PARAMETRIC, shaped_by=(1, 3), need=need_short_fourier)
