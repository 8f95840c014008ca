"""The pictures of reports in the documentation: a convolutional network, a transformer and a quantized network.

    python -m benchmarks.report_pictures [NAME...]     # writes docs/pictures/report-NAME.png

The models are those of :data:`benchmarks.models.SHARED`; Chromium takes the pictures.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import eqsat
from benchmarks.gallery import optimized
from benchmarks.models import SHARED
from eqsat.report.html import to_html
from eqsat.report.summary import Summary
from tests.report.browser import ask

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
DARK = "--blink-settings=preferredColorScheme=0"

_CHOSEN = """
const input = document.querySelector("#graph input");
input.value = "conv_sum"; input.dispatchEvent(new Event("input"));
for (let k = 0; k < 3; k++) input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
return null;
"""
_FROM_COST = """
const first = [...document.querySelectorAll("h2")].find((h) => h.textContent.startsWith("What the cost"));
let e = document.querySelector(".tiles").nextElementSibling;
for (; e && e !== first; e = e.nextElementSibling) e.hidden = true;
return null;
"""
_FROM_QUANTIZATION = """
document.querySelector("#graph").hidden = true;
for (const h of document.querySelectorAll("h2")) if (h.textContent.startsWith("The graph")) h.hidden = true;
return null;
"""


def network(name: str) -> Summary:
    """One of the exported networks, for oneDNN."""
    return optimized(SHARED / "zoo" / f"{name}.onnx.xz", verify=True)


def quantized() -> Summary:
    """A MobileNet for oneDNN, calibrated on eight random images, with a sweep."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((8, 3, 96, 96)).astype(np.float32)
    found = eqsat.quantize(SHARED / "tiny_mbv1_025.onnx", {"x": images}, targets=["dnnl"], budget=40, sweep=8)
    return found.summary


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes:
        summary: What the report is of.
        script: What is done on the page before the picture is taken.
        height: Of the window, in pixels.
        arguments: Of Chromium.
    """

    summary: Callable[[], Summary]
    script: str
    height: int
    arguments: tuple[str, ...] = ()


ALL = {
    "cnn": Picture(lambda: network("tv_mobilenet_v3_small_ts"), _CHOSEN, 1620),
    "transformer": Picture(lambda: network("hf_segformer_ts"), _FROM_COST, 1720, (DARK,)),
    "quantized": Picture(quantized, _FROM_QUANTIZATION, 1560),
}


def take(picture: Picture, path: Path) -> None:
    """Writes one picture."""
    with tempfile.TemporaryDirectory() as folder:
        html = to_html(picture.summary())
        shot = f"--screenshot={path}"
        ask(html, picture.script, Path(folder), shot, *picture.arguments, size=f"1400,{picture.height}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*ALL, []], default=[])
    for name in parser.parse_args().names or ALL:
        path = PICTURES / f"report-{name}.png"
        take(ALL[name], path)
        print(path.name)


if __name__ == "__main__":
    main()
