"""Control flow without an end, constant and not."""

from __future__ import annotations

from tests.hostile.case import hostile
from tests.hostile.sizes import HEAD

MUCH = 10**12
BODY = "<body = b (int64 i, bool d, float[2] s) => (bool e, float[2] t) { e = Identity(d) t = Add(s, s) }>"


@hostile("run", refused=True)
@hostile("optimize", "codegen")
def loop_without_end() -> str:
    return f"{HEAD}g (float[2] x) => (float[2] y) <int64 n = {{{MUCH}}}, bool c = {{1}}> {{ y = Loop(n, c, x) {BODY} }}"


@hostile()
def constant_loop() -> str:
    return (
        f"{HEAD}g (float[2] x) => (float[2] y) <int64 n = {{{MUCH}}}, bool c = {{1}}, float[2] w = {{1, 2}}> "
        f"{{ l = Loop(n, c, w) {BODY} y = Add(l, x) }}"
    )


@hostile()
def loop_without_count() -> str:
    return f"{HEAD}g (float[2] x) => (float[2] y) <bool c = {{1}}> {{ y = Loop(, c, x) {BODY} }}"


@hostile()
def loop_that_collects() -> str:
    return (
        f"{HEAD}g (float[1000000] x) => (y) <int64 n = {{{MUCH}}}, bool c = {{1}}> {{ y = Loop(n, c) <body = "
        "b (int64 i, bool d) => (bool e, float[1000000] t) { e = Identity(d) t = Add(x, x) }> }"
    )


@hostile()
def loop_that_doubles() -> str:
    return (
        f"{HEAD}g (float[2] x) => (y) <int64 n = {{60}}, bool c = {{1}}> {{ y = Loop(n, c, x) <body = "
        "b (int64 i, bool d, float[N] s) => (bool e, float[M] t) { e = Identity(d) t = Concat<axis = 0>(s, s) }> }"
    )


@hostile()
def loops_in_loops() -> str:
    def loop(k: int) -> str:
        inner = f"t{k + 1} = Add(s{k}, s{k})" if k == 12 else loop(k + 1)
        results = f"e{k} = Identity(d{k}) {inner} o{k} = Identity(t{k + 1})"
        head = f"b{k} (int64 i{k}, bool d{k}, float[2] s{k}) => (bool e{k}, float[2] o{k})"
        outer = f"s{k - 1}" if k else "x"
        return f"t{k} = Loop(n, c, {outer}) <body = {head} {{ {results} }}>"

    return f"{HEAD}g (float[2] x) => (float[2] t0) <int64 n = {{1000}}, bool c = {{1}}> {{ {loop(0)} }}"


@hostile()
def scan_over_10_to_8() -> str:
    return (
        f"{HEAD}g (float[1] x) => (y, z) <int64[1] s = {{100000000}}> {{ r = ConstantOfShape(s) y, z = Scan"
        "<num_scan_inputs = 1, body = b (float[1] a, float e) => (float[1] o, float f) "
        "{ o = Add(a, e) f = Identity(e) }>(x, r) }"
    )
