/* Both graphs together: pointer, touch and keyboard, search, and what is known of the chosen node. */
"use strict";
(() => {
  const store = document.getElementById("graphs");
  if (!store) return;
  const pairs = JSON.parse(store.textContent), place = document.getElementById("graph"), $ = (q) => place.querySelector(q);
  const hues = JSON.parse(place.dataset.hues), targets = JSON.parse(place.dataset.targets);
  const tip = $(".tip"), detail = $(".detail"), spoken = $(".spoken"), count = $(".found");
  let pair = pairs[0], coveredBy = [], found = [], at = -1;
  const views = ["before", "after"].map((side) => new View($(`canvas[data-side=${side}]`), hues));
  const sideOf = (view) => views.indexOf(view) ? "after" : "before";

  function open(k) {
    pair = pairs[k];
    coveredBy = pair.before.nodes.map(() => []);
    pair.covers.forEach((nodes, i) => nodes.forEach((n) => coveredBy[n].push(i)));
    // An operator of the input has the colour of the target that its part of the result runs on.
    pair.before.nodes.forEach((n, i) => { if (coveredBy[i].length) n[TARGET] = pair.after.nodes[coveredBy[i][0]][TARGET]; });
    for (const view of views) { view.show(pair[sideOf(view)]); describe(view); }
    found = []; at = -1; count.textContent = ""; detail.replaceChildren(element("p", "Choose a node to see what it stands for and which rules led to it.", "soft"));
  }
  function describe(view) {
    const graph = view.graph, work = graph.nodes.filter((n) => n[COST]).length;
    view.canvas.setAttribute("aria-label", `Graph ${sideOf(view)}: ${work} kernels${graph.regions.length ? ` in ${graph.regions.length} regions` : ""}. Arrow keys follow the edges, Enter changes to the other graph.`);
  }
  const twins = (view, i) => view === views[0] ? coveredBy[i] : pair.covers[i];
  const other = (view) => views[1 - views.indexOf(view)];

  function choose(view, i, speak) {
    const twin = other(view);
    view.chosen = i; twin.chosen = -1; view.marked = new Set(); twin.marked = new Set(i < 0 ? [] : twins(view, i));
    if (i >= 0) { view.reveal([i]); twin.reveal([...twin.marked]); }
    view.redraw(); twin.redraw();
    show(view, i);
    if (speak && i >= 0) { const n = view.graph.nodes[i]; spoken.textContent = [n[OP], n[NAME], n[COST], targets[n[TARGET]]].filter(Boolean).join(", ") + `; ${twin.marked.size} on the other side`; }
  }
  function element(tag, text, kind) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }
  function row(list, term, ...contents) {
    if (!contents.length || contents[0] === "") return;
    list.append(element("dt", term));
    const dd = element("dd");
    contents.forEach((c) => dd.append(c instanceof Node ? c : element("div", c)));
    list.append(dd);
  }
  function facts(list, view, n) {
    row(list, "runs on", view === views[0] ? "" : targets[n[TARGET]]);
    row(list, "cost", n[COST]);
    if (n[WORK]) { row(list, "work", n[WORK][0]); row(list, "limited by", n[WORK][1]); }
    row(list, "reads", ...n[READS]); row(list, "makes", ...n[MAKES]);
    row(list, "computes", n[OPERATORS].join(", "));
  }
  function show(view, i) {
    detail.replaceChildren();
    if (i < 0) return;
    const n = view.graph.nodes[i], list = element("dl"), title = element("h3", n[OP] + " ");
    title.append(element("code", n[NAME]));
    facts(list, view, n);
    const near = twins(view, i), twin = other(view);
    const links = near.slice(0, 40).map((k) => {
      const button = element("button", `${twin.graph.nodes[k][OP]} ${twin.graph.nodes[k][NAME]}`, "link");
      button.type = "button"; button.addEventListener("click", () => choose(twin, k, true));
      return button;
    });
    if (near.length > 40) links.push(element("span", ` and ${near.length - 40} more, marked in the graph`));
    if (n[COST]) row(list, view === views[0] ? "computed by" : "stands for", ...(links.length ? links : [view === views[0] ? "nothing: the result does not need it" : "nothing of its own: a value that only the result has"]));
    const kernels = view === views[1] ? [i] : near, single = kernels.length === 1;
    const step = ([name, before, after], k) => {
      const box = element("details"), known = pair.rules[name], head = element("summary", `${k + 1}. ${name} `), term = element("pre");
      if (known) head.append(element("code", known[0], "soft"), element("span", ` ${known[1]}`, "soft"));
      if (before || after) { term.append(before, element("b", "\n⇒ "), after); box.append(term); }
      if (known?.[2]) box.append(element("pre", known[2], "soft"));
      box.open = single && k < 3; box.prepend(head);
      return box;
    };
    for (const k of n[COST] ? kernels.slice(0, 12) : []) {
      const kernel = views[1].graph.nodes[k], chain = kernel[STEPS].map(step), folded = kernel[FOLDED].map(([name, from]) => element("div", `constant ${name} folded from ${from.join(", ")}`, "soft"));
      row(list, single ? "rules" : `rules of ${kernel[NAME]}`, ...(chain.length + folded.length ? [...chain, ...folded] : ["none: the operator is the input's own"]));
    }
    detail.append(title, list);
  }
  function hover(view, event) {
    const box = view.canvas.getBoundingClientRect(), i = view.at(event.clientX - box.left, event.clientY - box.top);
    view.canvas.style.cursor = i < 0 ? "grab" : "pointer";
    tip.hidden = i < 0;
    if (i < 0) return;
    const n = view.graph.nodes[i], list = element("dl");
    tip.replaceChildren(element("b", n[OP]), element("code", n[NAME]), list);
    facts(list, view, n);
    const area = place.getBoundingClientRect(), right = event.clientX - area.left + 14;
    tip.style.left = `${Math.max(0, Math.min(right, area.width - tip.offsetWidth))}px`;
    tip.style.top = `${event.clientY - area.top + 16}px`;
  }
  function pointers(view) {
    const held = new Map(), canvas = view.canvas;
    let moved = 0;
    const point = (e) => { const box = canvas.getBoundingClientRect(); return [e.clientX - box.left, e.clientY - box.top]; };
    const spread = () => { const [a, b] = [...held.values()]; return [Math.hypot(a[0] - b[0], a[1] - b[1]), [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2]]; };
    canvas.addEventListener("pointerdown", (e) => { canvas.setPointerCapture(e.pointerId); held.set(e.pointerId, point(e)); moved = 0; tip.hidden = true; });
    canvas.addEventListener("pointermove", (e) => {
      if (!held.has(e.pointerId)) { hover(view, e); return; }
      const last = held.get(e.pointerId), now = point(e);
      moved += Math.abs(now[0] - last[0]) + Math.abs(now[1] - last[1]);
      if (held.size === 1) { held.set(e.pointerId, now); if (moved > 4) view.pan(now[0] - last[0], now[1] - last[1]); return; }
      const [far, middle] = spread();
      held.set(e.pointerId, now);
      const [further, centre] = spread();
      if (far > 0) view.zoom(further / far, centre);
      view.pan(centre[0] - middle[0], centre[1] - middle[1]);
    });
    const release = (e) => { if (held.delete(e.pointerId) && moved <= 4 && e.type === "pointerup") choose(view, view.at(...point(e)), true); };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    canvas.addEventListener("wheel", (e) => { e.preventDefault(); view.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0016)), point(e)); }, { passive: false });
  }
  function keys(view) {
    const steps = { ArrowUp: [0, 60], ArrowDown: [0, -60], ArrowLeft: [60, 0], ArrowRight: [-60, 0] };
    view.canvas.addEventListener("keydown", (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      const i = view.chosen, moves = {
        ArrowDown: () => view.next[i][0], ArrowUp: () => view.before[i][0],
        ArrowLeft: () => view.beside(i, -1), ArrowRight: () => view.beside(i, 1),
      };
      if (e.shiftKey && steps[e.key]) view.pan(...steps[e.key]);
      else if (moves[e.key]) { const to = i < 0 ? 0 : moves[e.key]() ?? -1; if (to >= 0) choose(view, to, true); }
      else if (e.key === "+" || e.key === "=") view.zoom(1.25);
      else if (e.key === "-") view.zoom(0.8);
      else if (e.key === "0") view.home();
      else if (e.key === "f") view.fit();
      else if (e.key === "/") $("input").focus();
      else if (e.key === "Escape") choose(view, -1);
      else if (e.key === "Enter" && i >= 0) { const twin = other(view), to = twins(view, i)[0]; twin.canvas.focus(); if (to !== undefined) choose(twin, to, true); }
      else return;
      e.preventDefault();
    });
  }
  function search(text) {
    const wanted = text.toLowerCase();
    found = [];
    for (const view of views) {
      view.hits = new Set();
      if (wanted) view.graph.nodes.forEach((n, i) => { if (`${n[OP]}\n${n[NAME]}\n${n[OPERATORS].join("\n")}\n${n[STEPS].map((s) => s[0]).join("\n")}`.toLowerCase().includes(wanted)) { view.hits.add(i); found.push([view, i]); } });
      view.redraw();
    }
    at = -1;
    count.textContent = wanted ? `${views[0].hits.size} before, ${views[1].hits.size} after` : "";
  }
  function step(by) {
    if (!found.length) return;
    at = (at + by + found.length) % found.length;
    choose(...found[at], true);
    count.textContent = `${at + 1} of ${found.length}, ${sideOf(found[at][0])}`;
  }
  for (const view of views) { pointers(view); keys(view); }
  for (const button of place.querySelectorAll("button[data-do]")) button.addEventListener("click", () => {
    const view = views[button.dataset.side === "after" ? 1 : 0];
    ({ in: () => view.zoom(1.4), out: () => view.zoom(1 / 1.4), fit: () => view.fit(), home: () => view.home() })[button.dataset.do]();
  });
  const input = $("input");
  input.addEventListener("input", () => search(input.value));
  input.addEventListener("keydown", (e) => { if (e.key === "Enter") { e.preventDefault(); step(e.shiftKey ? -1 : 1); } });
  $("select")?.addEventListener("change", (e) => open(Number(e.target.value)));
  const colours = () => views.forEach((view) => view.readColours());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", colours);
  // A printed page is light, and has the whole graph: canvases have to be drawn so before it is printed.
  const printing = (on) => {
    document.documentElement.classList.toggle("light", on); colours();
    for (const view of views) {
      const paper = view.canvas.nextElementSibling, sheets = on ? view.sheets() : [];
      view.draw();
      paper.replaceChildren(...(sheets ?? [element("p", "The graph is too long to be printed. This is what was on the screen.", "soft")]));
      view.canvas.classList.toggle("unprinted", Boolean(sheets?.length));
    }
  };
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));
  open(0);
  views.forEach((view) => view.resize());
})();
