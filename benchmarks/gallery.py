"""The gallery: real networks before and after, as a page with a table and a picture each.

    python -m benchmarks.gallery FOLDER     # writes docs/gallery.md and docs/pictures/gallery/

``FOLDER`` has exported models in the form that `benchmarks.zoo` reads. The picture of a network is two bars on one
scale of predicted time: the operators of the input, and the kernels of the result, in the colour of where they run.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import eqsat
from benchmarks.zoo import notes_of, read
from eqsat import units
from eqsat.model.load import load
from eqsat.model.read.dims import free_sizes
from eqsat.report.summary import Summary, host_causes

DOCS = Path(__file__).parent.parent / "docs"
NETWORKS = {
    "tv_resnet18_dyn": "ResNet-18, torchvision",
    "tv_mobilenet_v3_small_ts": "MobileNetV3 small, torchvision",
    "tv_convnext_tiny_dyn": "ConvNeXt tiny, torchvision",
    "tv_deeplabv3_mnv3_dyn": "DeepLabV3 on MobileNetV3, torchvision",
    "own_unet_ts": "U-Net",
    "yolov8n_ts": "YOLOv8n, Ultralytics",
    "hf_bert_static_ts": "BERT, transformers",
    "hf_llama_dyn": "Llama, transformers",
    "hf_whisper_enc_ts": "Whisper encoder, transformers",
    "own_lstm_speech_ts": "LSTM for speech",
}
WIDTH, HIGH, LEFT, SPACE = 560.0, 18.0, 60.0, 8.0
LEAST = 1.5
"""Pixels of a bar; narrower neighbours of one colour become one bar."""
COLOURS = {"host": "#aab3c0", "accelerator": "#4a86c8", "copies": "#e0913a"}
HEAD = """# Gallery

Ten networks before and after, for oneDNN (`dnnl`) and one core of a host. PyTorch exported all of them. Their weights
are drawn from normal distributions like those of the trained ones. Costs are predicted from the target files, at the
sizes of the models' example inputs, with the same settings for all. `python -m benchmarks.gallery FOLDER` writes this
page.

*Operators* are those of the input after constants are folded. *Kernels* are the launches of the result. *Composites*
are kernels that replace several operators, and *regions* are the pieces that run on oneDNN in one go. *Host* counts
the operators that stay on the host. The *gap* is the proven distance to the cheapest program that the rules can
derive.

| network | operators | kernels | composites | regions | host | before | after | | gap |
|---|---|---|---|---|---|---|---|---|---|
"""
LEGEND = """
Each picture has two bars on one scale of time: the operators of the input, and the kernels of the result. Blue is
oneDNN, grey is the host, orange is copies and dispatches. An operator of the input has the colour of the kernel that
replaces it.
"""


class Part(NamedTuple):
    """A piece of a bar: where it runs, and seconds."""

    where: str
    seconds: float


def optimized(path: Path, *, verify: bool = False) -> Summary:
    """A network of the folder, for oneDNN."""
    proto, notes = read(path), notes_of(path)
    known = free_sizes(load(proto), {})
    dims = {name: (1, None, size) for name, size in notes.get("dims", {}).items() if name in known}
    return eqsat.optimize(proto, targets=["dnnl"], dims=dims, verify=verify).summary


def bars(summary: Summary) -> tuple[list[Part], list[Part]]:
    """The input and the result in execution order, control flow in what remains at the end."""
    host = summary.targets[0]
    (graphs,) = summary.graphs[:1]
    where = ["host" if node.target == host else "accelerator" for node in graphs.after.nodes]
    became = ["host"] * len(graphs.before.nodes)
    for target, covered in zip(where, graphs.covers, strict=True):
        for i in covered if target == "accelerator" else ():
            became[i] = target
    before = [Part(w, node.cost) for w, node in zip(became, graphs.before.nodes, strict=True) if node.cost]
    after = [Part(w, node.cost) for w, node in zip(where, graphs.after.nodes, strict=True) if node.cost]
    rest = summary.before.cost - sum(part.seconds for part in before)
    copies = summary.after.cost - sum(part.seconds for part in after)
    return [*before, Part("host", max(rest, 0.0))], [*after, Part("copies", max(copies, 0.0))]


def picture(summary: Summary) -> str:
    """Both bars as SVG."""
    scale = WIDTH / max(summary.before.cost, summary.after.cost)
    lines: list[str] = []
    for row, (side, parts) in enumerate(zip(("before", "after"), bars(summary), strict=True)):
        y = row * (HIGH + SPACE)
        total = sum(part.seconds for part in parts)
        lines.append(f'<text x="{LEFT - 8:g}" y="{y + HIGH / 2:g}" text-anchor="end">{side}</text>')
        x = LEFT
        for part in merged(parts, LEAST / scale):
            wide = part.seconds * scale
            box = f'x="{x:.1f}" y="{y:g}" width="{max(wide - 0.4, 0.2):.1f}" height="{HIGH:g}"'
            lines.append(f'<rect {box} fill="{COLOURS[part.where]}"/>')
            x += wide
        lines.append(f'<text x="{LEFT + total * scale + 6:.0f}" y="{y + HIGH / 2:g}">{units.seconds(total)}</text>')
    width, height = LEFT + WIDTH + 70, 2 * HIGH + SPACE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}">\n'
        "<style>text { font: 12px system-ui, sans-serif; fill: #5b6675; dominant-baseline: central }</style>\n"
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>\n' + "\n".join(lines) + "\n</svg>\n"
    )


def merged(parts: Iterable[Part], least: float) -> list[Part]:
    """The same with neighbours of one place taken together until they last ``least``."""
    found: list[Part] = []
    for where, run in groupby(parts, key=lambda part: part.where):
        open_ = 0.0
        for part in run:
            open_ += part.seconds
            if open_ >= least:
                found.append(Part(where, open_))
                open_ = 0.0
        if open_:
            found.append(Part(where, open_))
    return found


def row(title: str, summary: Summary) -> str:
    """A line of the table."""
    before, after = summary.before, summary.after
    cells = [
        title,
        *(f"{n:,}" for n in (before.operators, len(summary.kernels), after.composites, after.regions)),
        f"{after.host_operators:,}",
        units.seconds(before.cost),
        units.seconds(after.cost),
        units.factor(summary.speedup),
        units.percent(summary.gap),
    ]
    return f"| {' | '.join(cells)} |"


def sentence(summary: Summary) -> str:
    """What stays on the host: the reason that takes most time."""
    causes = sorted(host_causes(summary.host_operators), key=lambda cause: -cause.host)
    if not causes:
        return "Everything runs on oneDNN."
    cause = causes[0]
    names = ", ".join(f"{count:,} {op}" for op, count in cause.operators[:4])
    more = ", …" if len(cause.operators) > 4 else ""
    share = units.percent(cause.host / summary.after.cost)
    return f"Largest share on the host, {share} of the cost: {names}{more}. Reason: {cause.reason}."


def main() -> None:
    """Write the page and its pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    warnings.simplefilter("ignore")
    pictures = DOCS / "pictures" / "gallery"
    pictures.mkdir(exist_ok=True)
    rows: list[str] = []
    sections: list[str] = []
    for name, title in NETWORKS.items():
        summary = optimized(next(folder.glob(f"{name}.onnx*")))
        (pictures / f"{name}.svg").write_text(picture(summary), "utf-8")
        rows.append(row(title, summary))
        image = f"![{title}: two bars of time, before and after](pictures/gallery/{name}.svg)"
        sections.append(f"\n## {title}\n\n{image}\n\n{sentence(summary)}\n")
        print(rows[-1], flush=True)
    page = HEAD + "\n".join(rows) + "\n" + LEGEND + "".join(sections)
    (DOCS / "gallery.md").write_text(page, "utf-8")


if __name__ == "__main__":
    main()
