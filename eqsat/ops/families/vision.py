"""Operators of image processing without a kernel in eqsat: regions, boxes, columns."""

from __future__ import annotations

from eqsat.ops import counters as count
from eqsat.ops.checks import attributes, lengths
from eqsat.ops.need_by_parameters import need_col2im, need_max_roi_pool, need_roi_align
from eqsat.ops.need_by_shapes import need_suppression
from eqsat.ops.registry import declare
from eqsat.ops.sampling import image_regions as sample
from eqsat.ops.traits import PARAMETRIC
from eqsat.schema.opset import MICROSOFT

# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("Col2Im", traits=PARAMETRIC, shaped_by=(1, 2), macs=count.input_elements, need=need_col2im,
    sampling=sample.columns_to_image, checks=(lengths.columns,))
declare("ImageDecoder", shaped_by=(0,))
declare("MaxRoiPool", traits=PARAMETRIC, need=need_max_roi_pool, sampling=sample.max_roi_pool)
declare("NonMaxSuppression", shaped_by=(0, 1, 2, 3, 4), macs=count.input_elements, need=need_suppression,
    checks=(lengths.suppression,))
declare("RoiAlign", traits=PARAMETRIC, macs=count.roi_align, need=need_roi_align, sampling=sample.roi_align,
    checks=(attributes.words(mode=("avg", "max"), coordinate_transformation_mode=("half_pixel", "output_half_pixel")),
            attributes.positive("output_height", "output_width")))
declare("CropAndResize", domain=MICROSOFT, shaped_by=(3,))
