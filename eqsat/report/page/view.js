/* One graph on a canvas: what is on the screen is drawn, nothing else. Sizes are those of eqsat/report/drawn_graphs.py. */
"use strict";
const [X, Y, KIND, OP, NAME, TARGET, READS, MAKES, COST, WORK, OPERATORS, STEPS, FOLDED] = Array(13).keys();
const NODE = [176, 40], LEAF = [150, 26], BAND = 400, LONG = 20, LEGIBLE = 0.45, COARSE = 0.18;
const SHEET = [1000, 600], ON_PAPER = 0.8, MOST_SHEETS = 24;

class View {
  constructor(canvas, hues, onchange) {
    Object.assign(this, { canvas, hues, onchange, graph: null, scale: 1, x: 0, y: 0, chosen: -1, marked: new Set(), hits: new Set(), waiting: false });
    this.pen = canvas.getContext("2d");
    this.readColours();
    new ResizeObserver(() => this.resize()).observe(canvas);
  }
  readColours() {
    const style = getComputedStyle(document.documentElement), get = (n) => style.getPropertyValue(n).trim();
    this.ink = get("--ink"); this.soft = get("--soft"); this.line = get("--line"); this.paper = get("--paper"); this.mark = get("--mark");
    const dark = get("--dark") === "1";
    this.fill = this.hues.map((h) => h < 0 ? get("--tint") : `hsl(${h} ${dark ? 35 : 75}% ${dark ? 22 : 92}%)`);
    this.rim = this.hues.map((h) => h < 0 ? "#8a94a6" : `hsl(${h} 65% ${dark ? 60 : 45}%)`);
    this.wash = this.hues.map((h) => h < 0 ? "transparent" : `hsl(${h} 60% 50% / .07)`);
    this.redraw();
  }
  show(graph) {
    this.graph = graph; this.chosen = -1; this.marked = new Set(); this.hits = new Set();
    this.size = graph.nodes.map((n) => n[KIND] === "operator" || n[KIND] === "composite" ? NODE : LEAF);
    this.next = graph.nodes.map(() => []); this.before = graph.nodes.map(() => []);
    for (const e of graph.edges) { this.next[e[0]].push(e[1]); this.before[e[1]].push(e[0]); }
    this.nodeBands = []; this.edgeBands = []; this.longEdges = [];
    const put = (bands, from, to, what) => { for (let b = from; b <= to; b++) (bands[b] ??= []).push(what); };
    graph.nodes.forEach((n, i) => put(this.nodeBands, Math.floor(n[Y] / BAND), Math.floor((n[Y] + this.size[i][1]) / BAND), i));
    graph.edges.forEach((e, i) => {
      const ends = [graph.nodes[e[0]][Y] + this.size[e[0]][1], graph.nodes[e[1]][Y]].map((v) => Math.floor(v / BAND)).sort((a, b) => a - b);
      if (ends[1] - ends[0] > LONG) this.longEdges.push(i); else put(this.edgeBands, ends[0], ends[1], i);
    });
    this.home();
  }
  resize() {
    const box = this.canvas.getBoundingClientRect(), dots = window.devicePixelRatio || 1;
    if (!box.width) return;
    const first = !this.wide;
    this.wide = box.width; this.high = box.height;
    this.canvas.width = Math.round(box.width * dots); this.canvas.height = Math.round(box.height * dots);
    this.dots = dots;
    if (first && this.graph) this.home();
    this.draw();
  }
  home() { /* The whole graph if its text can be read, else its beginning. */
    const g = this.graph, wide = (this.wide - 24) / g.width, whole = Math.min(1, wide, (this.high - 24) / g.height);
    this.scale = whole >= LEGIBLE ? whole : Math.max(0.65, Math.min(0.8, wide));
    const first = g.nodes[0], middle = g.width * this.scale <= this.wide || !first ? g.width / 2 : first[X] + this.size[0][0] / 2;
    this.x = this.wide / 2 - middle * this.scale; this.y = whole >= LEGIBLE ? (this.high - g.height * this.scale) / 2 : 12;
    this.redraw();
  }
  fit() {
    const g = this.graph;
    this.scale = Math.min(1.5, (this.wide - 24) / g.width, (this.high - 24) / g.height);
    this.x = (this.wide - g.width * this.scale) / 2; this.y = (this.high - g.height * this.scale) / 2;
    this.redraw();
  }
  zoom(by, at = [this.wide / 2, this.high / 2]) {
    const scale = Math.max(0.002, Math.min(4, this.scale * by)), k = scale / this.scale;
    this.x = at[0] - (at[0] - this.x) * k; this.y = at[1] - (at[1] - this.y) * k; this.scale = scale;
    this.redraw();
  }
  pan(dx, dy) { this.x += dx; this.y += dy; this.redraw(); }
  reveal(nodes) { /* Moves only if they are not all in sight. */
    if (!nodes.length) return;
    let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
    for (const i of nodes) {
      const n = this.graph.nodes[i], [w, h] = this.size[i];
      left = Math.min(left, n[X]); top = Math.min(top, n[Y]); right = Math.max(right, n[X] + w); bottom = Math.max(bottom, n[Y] + h);
    }
    const s = this.scale, inside = left * s + this.x >= 0 && top * s + this.y >= 0 && right * s + this.x <= this.wide && bottom * s + this.y <= this.high;
    if (inside && s >= LEGIBLE) return;
    const fits = Math.min((this.wide - 60) / (right - left), (this.high - 60) / (bottom - top));
    this.scale = Math.max(LEGIBLE, Math.min(Math.max(s, 0.8), fits));
    const tall = (bottom - top) * this.scale > this.high;
    this.x = this.wide / 2 - (left + right) / 2 * this.scale;
    this.y = tall ? 30 - top * this.scale : this.high / 2 - (top + bottom) / 2 * this.scale;
    this.redraw();
  }
  at(px, py) {
    if (!this.graph) return -1;
    const x = (px - this.x) / this.scale, y = (py - this.y) / this.scale;
    for (const i of this.nodeBands[Math.floor(y / BAND)] ?? []) {
      const n = this.graph.nodes[i], [w, h] = this.size[i];
      if (x >= n[X] && x <= n[X] + w && y >= n[Y] && y <= n[Y] + h) return i;
    }
    return -1;
  }
  beside(i, direction) { /* The nearest node to the left or right, about as high. */
    const n = this.graph.nodes[i];
    let best = -1, least = Infinity;
    for (const k of this.nodeBands[Math.floor(n[Y] / BAND)] ?? []) {
      const other = this.graph.nodes[k], far = (other[X] - n[X]) * direction;
      if (k !== i && far > 0 && Math.abs(other[Y] - n[Y]) < 30 && far < least) { best = k; least = far; }
    }
    return best;
  }
  redraw() {
    if (this.waiting || !this.graph) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }
  draw() {
    if (!this.graph || !this.wide) return;
    const { pen, graph, scale: s } = this;
    pen.setTransform(this.dots, 0, 0, this.dots, 0, 0);
    pen.fillStyle = this.paper; pen.fillRect(0, 0, this.wide, this.high);
    pen.setTransform(this.dots * s, 0, 0, this.dots * s, this.dots * this.x, this.dots * this.y);
    const top = -this.y / s, bottom = (this.high - this.y) / s, left = -this.x / s, right = (this.wide - this.x) / s;
    const bands = [Math.max(0, Math.floor(top / BAND)), Math.floor(bottom / BAND)];
    this.drawRegions(top, bottom, s);
    this.drawEdges(bands, s);
    const seen = new Set();
    for (let b = bands[0]; b <= Math.min(bands[1], this.nodeBands.length); b++) for (const i of this.nodeBands[b] ?? []) {
      const n = graph.nodes[i];
      if (seen.has(i) || n[X] > right || n[X] + this.size[i][0] < left) continue;
      seen.add(i);
      this.drawNode(i, n, s);
    }
    this.onchange?.();
  }
  sheets() { /* The whole graph as pictures that fill half a page each; null if that takes too many. */
    const g = this.graph, scale = Math.min(ON_PAPER, (SHEET[0] - 16) / g.width), tall = SHEET[1] / scale, ends = [-8];
    if (g.height > MOST_SHEETS * tall) return null;
    const rows = g.nodes.map((n, i) => [n[Y], n[Y] + this.size[i][1]]).sort((a, b) => b[0] - a[0]);
    while (g.height + 8 - ends.at(-1) > tall) {
      // No node is cut, nor its frame.
      let end = ends.at(-1) + tall;
      for (const [top, bottom] of rows) if (top < end + 2 && bottom > end - 2) end = top - 2;
      ends.push(end > ends.at(-1) ? end : ends.at(-1) + tall);
    }
    ends.push(g.height + 8);
    return ends.slice(1).map((end, k) => this.sheet(scale, ends[k], end));
  }
  sheet(scale, top, bottom) {
    const { canvas, pen, wide, high, dots, x, y, scale: s, onchange } = this, picture = document.createElement("canvas");
    Object.assign(this, { canvas: picture, pen: picture.getContext("2d"), dots: 1.5, wide: SHEET[0], high: (bottom - top) * scale, scale, onchange: null });
    picture.width = this.wide * this.dots; picture.height = Math.ceil(this.high * this.dots);
    this.x = (this.wide - this.graph.width * scale) / 2; this.y = -top * scale;
    this.draw();
    Object.assign(this, { canvas, pen, wide, high, dots, x, y, scale: s, onchange });
    return picture;
  }
  drawRegions(top, bottom, s) {
    const pen = this.pen;
    for (const [name, target, x, y, w, h, count] of this.graph.regions) {
      if (y > bottom || y + h < top) continue;
      pen.fillStyle = this.wash[target]; pen.strokeStyle = this.rim[target];
      pen.lineWidth = Math.max(1, 1 / s); pen.setLineDash(this.hues[target] < 0 ? [6, 5] : []);
      pen.beginPath(); pen.roundRect(x, y, w, h, 10); pen.fill(); pen.stroke(); pen.setLineDash([]);
      if (s > COARSE) {
        // The name stays in sight while any part of its region is.
        const high = Math.min(Math.max(y + 15, top + 14 / s), y + h - 6), size = Math.min(16, Math.max(12, 10 / s));
        pen.fillStyle = this.rim[target]; pen.font = `600 ${size}px system-ui, sans-serif`; pen.textAlign = "left";
        pen.fillText(this.cut(`${name} · ${count}`, w - 16), x + 8, high);
      }
    }
  }
  drawEdges(bands, s) {
    const pen = this.pen, edges = this.graph.edges;
    const near = new Set(this.longEdges), strong = [];
    for (let b = bands[0]; b <= Math.min(bands[1], this.edgeBands.length); b++) for (const i of this.edgeBands[b] ?? []) near.add(i);
    pen.strokeStyle = this.soft; pen.lineWidth = s < COARSE ? 1.2 / s : 1.2; pen.globalAlpha = 0.6;
    pen.beginPath();
    for (const i of near) if (edges[i][0] === this.chosen || edges[i][1] === this.chosen) strong.push(i); else this.path(edges[i]);
    pen.stroke(); pen.globalAlpha = 1;
    pen.strokeStyle = this.mark; pen.lineWidth = Math.max(2, 1.5 / s);
    pen.beginPath(); for (const i of strong) this.path(edges[i]); pen.stroke();
  }
  path(e) {
    const a = this.graph.nodes[e[0]], b = this.graph.nodes[e[1]], pen = this.pen;
    let x = a[X] + this.size[e[0]][0] / 2, y = a[Y] + this.size[e[0]][1];
    pen.moveTo(x, y);
    const step = (tx, ty) => {
      const half = (y + ty) / 2;
      if (tx === x) pen.lineTo(tx, ty); else pen.bezierCurveTo(x, half, tx, half, tx, ty);
      x = tx; y = ty;
    };
    for (let k = 2; k < e.length; k += 2) step(e[k], e[k + 1]);
    step(b[X] + this.size[e[1]][0] / 2, b[Y]);
  }
  drawNode(i, n, s) {
    const pen = this.pen, [w, h] = this.size[i], leaf = this.size[i] === LEAF;
    const special = i === this.chosen || this.marked.has(i) || this.hits.has(i);
    pen.fillStyle = leaf ? this.paper : this.fill[n[TARGET]];
    pen.strokeStyle = special ? this.mark : leaf ? this.line : this.rim[n[TARGET]];
    if (s < COARSE) {
      pen.fillStyle = pen.strokeStyle; const grow = special ? 3 / s : 0;
      pen.fillRect(n[X] - grow / 2, n[Y] - grow / 2, w + grow, h + grow);
      return;
    }
    pen.lineWidth = i === this.chosen ? 4 : special ? 3 : n[KIND] === "composite" ? 2 : 1;
    if (this.hits.has(i)) pen.setLineDash([5, 3]);
    pen.beginPath(); pen.roundRect(n[X], n[Y], w, h, leaf ? h / 2 : 6); pen.fill(); pen.stroke(); pen.setLineDash([]);
    if (s < LEGIBLE * 0.6) return;
    pen.fillStyle = this.ink; pen.textAlign = "center"; pen.font = leaf ? "12px system-ui, sans-serif" : "600 13px system-ui, sans-serif";
    pen.fillText(this.cut(leaf ? n[NAME] : n[OP], w - 12), n[X] + w / 2, n[Y] + 17);
    if (!leaf) {
      pen.fillStyle = this.soft; pen.font = "11px system-ui, sans-serif";
      pen.fillText(n[COST] ? `${n[COST]} · ${this.tail(n[NAME], w - 18 - pen.measureText(`${n[COST]} · `).width)}` : this.tail(n[NAME], w - 12), n[X] + w / 2, n[Y] + 32);
    }
  }
  tail(text, width) { /* The end of a name says more than its beginning. */
    if (text.length > 60) text = text.slice(-60);
    if (this.pen.measureText(text).width <= width) return text;
    while (text.length > 1 && this.pen.measureText("…" + text).width > width) text = text.slice(Math.max(1, Math.floor(text.length * 0.1)));
    return "…" + text;
  }
  cut(text, width) {
    if (text.length > 60) text = text.slice(0, 60);
    if (this.pen.measureText(text).width <= width) return text;
    while (text.length > 1 && this.pen.measureText(text + "…").width > width) text = text.slice(0, Math.floor(text.length * 0.9) - (text.length < 10 ? 1 : 0));
    return text + "…";
  }
}
