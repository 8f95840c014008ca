/* Tables that can be sorted and filtered, by pointer and by keyboard. */
"use strict";
/* The end of a long table waits in a template, which costs a browser next to nothing. */
const complete = (table) => {
  const rest = table.querySelector("template");
  if (!rest) return;
  rest.replaceWith(rest.content);
  document.querySelector(`[data-all="${table.id}"]`)?.parentNode.remove();
};
for (const button of document.querySelectorAll("[data-all]")) button.addEventListener("click", () => complete(document.getElementById(button.dataset.all)));
const key = (row, i) => { const c = row.cells[i]; return "value" in c.dataset ? Number(c.dataset.value) : c.textContent; };
for (const th of document.querySelectorAll("th[data-sort]")) {
  const sort = () => {
    complete(th.closest("table"));
    const body = th.closest("table").tBodies[0], i = th.cellIndex, up = th.dataset.sort !== "up";
    for (const head of th.parentNode.cells) { head.removeAttribute("aria-sort"); if (head !== th && "sort" in head.dataset) head.dataset.sort = ""; }
    th.dataset.sort = up ? "up" : "down"; th.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows].sort((a, b) => { const x = key(a, i), y = key(b, i); return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1); });
    body.append(...rows);
  };
  th.tabIndex = 0;
  th.addEventListener("click", sort);
  th.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); sort(); } });
}
for (const input of document.querySelectorAll("[data-filter]")) input.addEventListener("input", () => {
  complete(document.getElementById(input.dataset.filter));
  for (const row of document.getElementById(input.dataset.filter).tBodies[0].rows)
    row.hidden = !row.textContent.toLowerCase().includes(input.value.toLowerCase());
});
