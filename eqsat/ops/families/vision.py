"""Operators of image processing without a kernel of ours: grids, regions, boxes."""

from __future__ import annotations

from eqsat.ops.registry import declare
from eqsat.schema.opset import MICROSOFT

# ---- declarations ----------------------------------------------------------------------------------

declare("AffineGrid", shaped_by=(1,))
declare("Col2Im", shaped_by=(1, 2))
declare("ImageDecoder", shaped_by=(0,))
declare("NonMaxSuppression", shaped_by=(0, 1, 2, 3, 4))
declare("CropAndResize", domain=MICROSOFT, shaped_by=(3,))
