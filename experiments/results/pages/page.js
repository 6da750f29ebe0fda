"use strict";
const tip = document.getElementById("tip");
let pinned = null, followed = null; // jobs: clicked, under the pointer

function show(target, x, y) {
  tip.hidden = !target;
  if (!target) return;
  tip.textContent = inUnits(target.dataset.tip, target);
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = (y + box.height + 24 < innerHeight ? y + 16 : y - box.height - 10) + "px";
}

function pick(job) {
  document.querySelectorAll(".hot").forEach((e) => e.classList.remove("hot"));
  for (const svg of document.querySelectorAll("svg")) {
    const parts = job ? [...svg.querySelectorAll("[data-job]")].filter((e) => e.dataset.job === job) : [];
    svg.classList.toggle("picked", parts.length > 0);
    parts.forEach((e) => e.classList.add("hot"));
  }
}

// ---------------------------------------------------------------- pointer

document.addEventListener("mousemove", (event) => {
  show(event.target.closest("[data-tip]"), event.clientX, event.clientY);
  const job = event.target.closest("svg [data-job]")?.dataset.job ?? null;
  if (!pinned && job !== followed) pick(job);
  followed = job;
});

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-job]"), part = event.target.closest("[data-job]");
  if (link) return follow(event, link);
  if (event.target.closest("button, input, label, summary, a")) return;
  pinned = part && part.dataset.job !== pinned ? part.dataset.job : null;
  pick(pinned);
});

document.addEventListener("dblclick", (event) => event.target.closest(".zoom")?.classList.toggle("large"));

// a link to a job in a picture
function follow(event, link) {
  event.preventDefault();
  pick((pinned = link.dataset.job));
  const target = document.querySelector(link.getAttribute("href"));
  if (location.hash !== link.hash) history.replaceState(null, "", link.hash);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  target.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  reach(target);
}

// ---------------------------------------------------------------- keyboard: a picture is one stop, arrows walk through its tips

function walk(svg) {
  const top = svg.getBoundingClientRect().top;
  const found = [...svg.querySelectorAll("[data-tip]")].map((element) => {
    const box = element.getBoundingClientRect();
    return { element, x: box.left, y: Math.round((box.top + box.bottom) / 2 - top) };
  });
  return svg.matches(".plot") ? found : found.sort((a, b) => a.y - b.y || a.x - b.x); // a plot's stand line by line
}

function reach(element) {
  if (!element.hasAttribute("tabindex")) element.setAttribute("tabindex", "-1");
  if (element.dataset.tip) {
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", element.dataset.tip);
  }
  element.focus({ preventScroll: !element.dataset.tip });
  const box = element.getBoundingClientRect();
  if (element.dataset.tip) show(element, Math.max(0, box.left), Math.min(innerHeight, box.bottom));
}

function next(svg, key) {
  const all = walk(svg), n = all.findIndex((each) => each.element === document.activeElement), here = all[n];
  if (key === "ArrowRight") return all[n + 1];
  if (key === "ArrowLeft") return all[n < 0 ? all.length - 1 : n - 1];
  if (key === "Home" || key === "End" || !here) return all[key === "End" ? all.length - 1 : 0];
  const rest = key === "ArrowDown" ? all.filter((each) => each.y > here.y) : all.filter((each) => each.y < here.y);
  const row = Math[key === "ArrowDown" ? "min" : "max"](...rest.map((each) => each.y));
  return rest.filter((each) => each.y === row).sort((a, b) => Math.abs(a.x - here.x) - Math.abs(b.x - here.x))[0];
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    show(null);
    pick((pinned = null));
  }
  const element = event.target, svg = element.closest?.("svg");
  if (!svg || event.ctrlKey || event.altKey || event.metaKey) return;
  if (/^(Arrow|Home|End)/.test(event.key)) {
    const found = next(svg, event.key);
    if (found) reach(found.element);
  } else if (event.key === "Enter" || event.key === " ") {
    if (element === svg) svg.closest(".zoom")?.classList.toggle("large");
    else if (element.dataset.job) pick((pinned = element.dataset.job === pinned ? null : element.dataset.job));
  } else return;
  event.preventDefault();
});

document.addEventListener("focusout", () => show(null));

// what scrolls must be reached, too
function reachable() {
  for (const box of document.querySelectorAll(".scroll, pre")) {
    if (box.scrollWidth <= box.clientWidth) continue;
    const heading = box.closest("section, details, body").querySelector("h1, h2, h3, summary");
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", heading ? heading.textContent : "more at the right");
  }
}
addEventListener("resize", reachable);
reachable();

// ---------------------------------------------------------------- units: every time, size and rate in words, anew at the page's switches

const SECONDS = { us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400 }, PREFIX = { T: 1e12, G: 1e9, M: 1e6, k: 1e3, "": 1 };
// 12 d 06:30 · 2:30 min · 10.5 GPU-h · 4.2 Mbit/s · 3.2 GB
const QUANTITY = /(?<![\w.:])(?:(\d+) d (\d\d):(\d\d)(?::([\d.]+))?|(\d{1,3}(?: \d{3})+(?:\.\d+)?|[\d.]+(?:e[+-]\d+)?|\d+(?::[\d.]+)+) (?:(GPU-)?(us|ms|s|min|h|d)|([kMGT]?)(bit\/s|B)))(?![\w\/-])/g;
const CLASS = /^(below|above|\d+ to) /; // of payloads, at real scale
const unitOf = document.getElementById("unit"), scaleOf = document.getElementById("scale"), words = new Map();

function short(value, units) {
  const unit = Object.keys(units).sort((a, b) => units[b] - units[a]).find((name) => Math.abs(value) >= units[name]) ?? Object.keys(units).at(value ? 0 : 2);
  return `${+(value / units[unit]).toPrecision(4)} ${unit}`;
}

function inUnits(text, element) {
  const unit = unitOf?.value, real = scaleOf?.value && !element.closest("[data-unscaled]") ? scaleOf.closest(".units").dataset : { bytes: 1, time: 1 };
  if (!unit && !scaleOf?.value) return text;
  return text.replace(QUANTITY, (all, days, hours, minutes, seconds, number, gpu = "", name, prefix, kind) => {
    if (kind) return real.bytes === 1 ? all : short((parseFloat(number) * PREFIX[prefix]) / (kind === "B" ? real.bytes : real.bytes / real.time), PREFIX) + kind;
    const digits = number?.replaceAll(" ", "").split(":").map((part, n) => parseFloat(part) / 60 ** n);
    const s = (digits ? digits.reduce((a, b) => a + b) * SECONDS[name] : days * 86400 + hours * 3600 + minutes * 60 + (+seconds || 0)) / real.time;
    const told = unit ? `${+(s / SECONDS[unit]).toPrecision(4)} ${unit}` : short(s, SECONDS);
    return told.replace(" ", ` ${gpu}`);
  });
}

function rewrite() {
  if (!words.size) {
    const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    for (let node; (node = walker.nextNode()); ) if (/\d \S/.test(node.data) && !node.parentElement.closest("h1, code, .provenance, .units, style") && !CLASS.test(node.data)) words.set(node, node.data);
  }
  for (const [node, told] of words) node.data = inUnits(told, node.parentElement);
}
for (const each of [unitOf, scaleOf]) each?.addEventListener("change", rewrite);

// ---------------------------------------------------------------- a table that is sorted by a column, and filtered

// a cell's order: its number, time or size; else its text, after all numbers
function rank(text) {
  const [found] = text.matchAll(QUANTITY), number = /^-?[\d.]+(?= of |%|$)/.exec(text);
  if (number) return [0, parseFloat(number[0])];
  if (!found || found[0] !== text) return text === "-" ? [2, 0] : [1, text];
  const [, , , , , value, , name, prefix] = found;
  return [0, parseFloat(value.replaceAll(" ", "")) * (SECONDS[name] ?? PREFIX[prefix] ?? 1)];
}

function sortBy(table, column, up) {
  const key = (tr) => rank(words.get(tr.cells[column].firstChild) ?? tr.cells[column].textContent.trim());
  const rows = [...table.tBodies[0].rows].map((tr) => [key(tr), tr]);
  rows.sort(([[a, one]], [[b, other]]) => a - b || (up ? 1 : -1) * (typeof one === "number" ? one - other : one.localeCompare(other)));
  table.tBodies[0].append(...rows.map(([, tr]) => tr));
}

for (const table of document.querySelectorAll("table[data-sorted]")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((th, column) => {
    const button = document.createElement("button");
    button.append(...th.childNodes);
    th.append(button);
    button.addEventListener("click", () => {
      const up = th.getAttribute("aria-sort") !== "ascending";
      for (const each of heads) each.removeAttribute("aria-sort");
      th.setAttribute("aria-sort", up ? "ascending" : "descending");
      sortBy(table, column, up);
    });
  });
  const filters = [...document.querySelectorAll("select[data-filter]")];
  const filter = () => { for (const tr of table.tBodies[0].rows) tr.hidden = filters.some((each) => each.value && tr.dataset[each.dataset.filter] !== each.value); };
  for (const each of filters) each.addEventListener("change", filter);
}

// ---------------------------------------------------------------- the story

document.getElementById("all")?.addEventListener("change", (event) => {
  document.querySelector(".story").classList.toggle("all", event.target.checked);
});
