"""Attributes that a pattern leaves open may have any value, so instances of an operator differ in all of them."""

from __future__ import annotations

from collections import defaultdict

import pytest

from eqsat.check.attempt import draw
from eqsat.check.draw_state import Drawing
from eqsat.check.instance import Instance
from eqsat.check.rule import check_rule
from eqsat.ops.sampling.chance import Chance, Rejected
from eqsat.rules.expand import expand
from eqsat.rules.reader import read_text

CALLS = {
    "Cast(a, to=float8e4m3fn)": ("saturate",),
    "Col2Im(a, b, c)": ("pads", "strides", "dilations"),
    "DeformConv(a, b, c)": ("dilations", "strides", "pads", "group", "offset_group"),
    "DepthToSpace(a)": ("blocksize", "mode"),
    "EyeLike(a)": ("k", "dtype"),
    "Attention(a, b, c)": ("scale", "softcap", "is_causal"),
    "MeanVarianceNormalization(a)": ("axes",),
    "Mod(a, b)": ("fmod",),
    "NegativeLogLikelihoodLoss(a, b)": ("ignore_index", "reduction"),
    "Reshape(a, b)": ("allowzero",),
    "Resize(a, roi, s)": ("extrapolation_value", "coordinate_transformation_mode"),
    'Resize(a, sizes=s, mode="cubic")': ("cubic_coeff_a", "exclude_outside", "antialias", "keep_aspect_ratio_policy"),
    "com.microsoft.QGemm(a, b, c, d, e, f)": ("alpha", "transA", "transB"),
}


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_attributes_vary(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: defaultdict[str, set[object]] = defaultdict(set)
    model = Instance.model

    def note(instance: Instance) -> object:
        for name in CALLS[call]:
            seen[name].add(dict(instance.steps[-1].attrs).get(name))
        return model(instance)

    monkeypatch.setattr(Instance, "model", note)
    right = call[:-1].replace(", to=float8e4m3fn", "").replace(', mode="cubic"', "") + ", **n)"
    rule = read_text(f"rule r : exact\n    n: {call}  =>  Where(tensor(true, bool), {right}, {right})\n").rules[0]
    check_rule(rule, instances=40, pointed=True)
    assert {name for name in CALLS[call] if len(seen[name]) < 2} == set()


def test_windows_of_other_dimensions_than_the_rule_says_are_rejected() -> None:
    """The operand may have been drawn before, of any rank."""
    text = "rule r : exact\n    Conv(x, w, dilations=[1, 1]) + Relu(x)  =>  x\n"
    rule = read_text(text).rules[0]
    (clause,) = expand(rule.left)
    drawn = 0
    for seed in range(200):
        try:
            draw(Drawing(rule, clause), Chance(seed), "plain")
            drawn += 1
        except Rejected:
            pass
    assert drawn
