"use strict";
const tip = document.getElementById("tip");
let pinned = null, followed = null; // jobs: clicked, under the pointer

function show(target, x, y) {
  tip.hidden = !target;
  if (!target) return;
  tip.textContent = target.dataset.tip;
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

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

// ---------------------------------------------------------------- time, as report/times.py tells it

const MINUTE = 60, HOUR = 3600, DAY = 86400;
const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30,
  ...[1, 2, 5, 10, 15, 30].map((m) => m * MINUTE), ...[1, 2, 3, 6, 12].map((h) => h * HOUR),
  ...[1, 10, 100, 1000].flatMap((power) => [1, 2, 5].map((d) => d * power * DAY))];
const two = (n) => String(n).padStart(2, "0");
const stepOf = (least) => STEPS.find((step) => step >= least * 0.999) ?? STEPS[STEPS.length - 1];

function told(s) {
  const ms = Math.round(s * 1000), seconds = (ms % 60000) / 1000, minutes = Math.floor(ms / 60000);
  const minute = minutes % 60, hour = Math.floor(minutes / 60) % 24, day = Math.floor(minutes / 1440);
  const rest = seconds ? ":" + seconds.toFixed(3).padStart(6, "0").replace(/\.?0+$/, "") : "";
  if (day) return `${day} d` + (ms % 86400000 ? ` ${two(hour)}:${two(minute)}${rest}` : "");
  if (hour) return hour + (minute || rest ? `:${two(minute)}${rest}` : "") + " h";
  return minute ? `${minute}${rest} min` : `${seconds} s`;
}

function ofDay(s) {
  const all = Math.round(s), seconds = all % 60, minutes = Math.floor(all / 60);
  return `${two(Math.floor(minutes / 60))}:${two(minutes % 60)}` + (seconds ? ":" + two(seconds) : "");
}

function ticks(from, to, about) {
  const step = stepOf((to - from) / about), found = [];
  for (let n = Math.ceil(from / step - 1e-9); n <= Math.floor(to / step + 1e-9); n++) found.push([n * step, told(n * step)]);
  return found;
}

function hours(from, to, about, day, dayStart, until) {
  const real = DAY / day, first = (dayStart + from) * real, last = (dayStart + to) * real, found = [];
  const step = stepOf((last - first) / about);
  for (let n = Math.ceil(first / step - 1e-9); n <= Math.floor(last / step + 1e-9); n++) {
    const at = n * step + 1e-6, of = at % DAY;
    let label = ofDay(of);
    if (until * real >= DAY && (of < 1e-3 || !found.length)) label = `day ${Math.floor(at / DAY) + 1}` + (of >= 1e-3 ? " " + label : "");
    found.push([n * step / real - dayStart, label]);
  }
  return found;
}

// ---------------------------------------------------------------- one window of time for all charts of a page

const drawn = (name) => document.createElementNS(document.querySelector("svg").namespaceURI, name);
const MOVED = ["x", "width", "cx", "x1", "x2", "d"];
const MOST_ZOOM = 5000;
const were = new WeakMap(), walks = new WeakMap();

class Chart {
  constructor(svg) {
    this.svg = svg;
    for (const name of ["until", "day", "dayStart", "start", "end", "most"]) this[name] = Number(svg.dataset[name]);
    this.marks = svg.querySelector(".marks");
    this.overview = [...this.marks.childNodes];
    this.detail = { key: "", nodes: [] };
    const after = svg.parentElement.querySelectorAll(":scope > .slices, :scope > .thinned");
    this.said = [...after].find((e) => e.matches(".thinned"));
    this.packed = [...after].find((e) => e.matches(".slices"));
  }

  x(s) { return this.start + s / this.until * (this.end - this.start); }
  s(x) { return (x - this.start) / (this.end - this.start) * this.until; }

  moment(s) {
    const at = (this.dayStart + s) * DAY / this.day;
    return `day ${Math.floor(at / DAY) + 1} ${ofDay(Math.min(at % DAY, DAY - 1))}`;
  }

  async slices() {
    this.unpacked ??= inflated(this.packed.textContent).then(JSON.parse);
    return this.unpacked;
  }

  async nodes(from, to, isWhole) {
    let said = this.said?.dataset.said + ": what lies side by side is drawn as one, and says what it stands for. A shorter time shows each.";
    let nodes = this.overview;
    if (this.packed && !isWhole) {
      const all = await this.slices();
      const here = [...all.keys()].filter((n) => all[n][1] >= this.x(from) && all[n][0] <= this.x(to));
      const count = here.reduce((sum, n) => sum + all[n][2], 0);
      if (count <= this.most) {
        const key = here.join();
        if (this.detail.key !== key) {
          const group = drawn("g");
          const layers = here.flatMap((n) => all[n][3]).sort((a, b) => a[0] - b[0]);
          group.innerHTML = layers.flatMap(expanded).join("");
          this.detail = { key, nodes: [...group.childNodes] };
        }
        nodes = this.detail.nodes;
        said = `Each of ${count} marks is drawn.`;
      }
    }
    if (this.said && this.said.textContent !== said) this.said.textContent = said;
    return nodes;
  }

  async draw(from, to, isWhole) {
    const turn = this.turn = (this.turn ?? 0) + 1;
    const nodes = await this.nodes(from, to, isWhole);
    if (turn !== this.turn) return;
    if (this.marks.firstChild !== nodes[0]) this.marks.replaceChildren(...nodes);
    const left = this.x(from), scale = (this.end - this.start) / (this.x(to) - left);
    const at = (x) => this.start + (x - left) * scale;
    nodes.forEach((e) => place(e, at));
    if (!isWhole || this.labelled) this.label();
    for (const group of this.svg.querySelectorAll(".times")) this.times(group, from, to);
    walks.delete(this.svg);
  }

  label() {
    this.labelled = true;
    this.svg.querySelectorAll(".bar-label").forEach((e) => e.remove());
    for (const bar of this.marks.querySelectorAll("rect.bar:not(.starting)")) {
      const x = Math.max(this.start, Number(bar.getAttribute("x")));
      const room = Math.min(this.end, Number(bar.getAttribute("x")) + Number(bar.getAttribute("width"))) - x;
      const height = Number(bar.getAttribute("height"));
      if (height < 12 || room < 6.2 * bar.dataset.job.length + 6) continue;
      const text = drawn("text");
      for (const [name, value] of [["x", x + 3], ["y", Number(bar.getAttribute("y")) + height / 2 + 3.6], ["class", "bar-label"]]) text.setAttribute(name, value);
      text.dataset.job = text.textContent = bar.dataset.job;
      this.marks.append(text);
    }
  }

  times(group, from, to) {
    const { y, about, ofDay: isOfDay, from: top, to: bottom } = group.dataset;
    const found = isOfDay ? hours(from, to, Number(about), this.day, this.dayStart, this.until) : ticks(from, to, Number(about));
    group.innerHTML = found.map(([s, label]) => {
      const x = (this.start + (s - from) / (to - from) * (this.end - this.start)).toFixed(2);
      const line = top ? `<line x1="${x}" y1="${top}" x2="${x}" y2="${bottom}" class="grid"/>` : "";
      return `${line}<text x="${x}" y="${y}" class="tick" text-anchor="middle">${label}</text>`;
    }).join("");
  }
}

// texts that differ in numbers alone: layer, what they share, a column for each number: decimals, the first, differences
function expanded([, shared, ...columns]) {
  const numbers = columns.map(([decimals, ...steps]) => {
    let sum = 0;
    return steps.map((step) => (sum += step) / 10 ** decimals);
  });
  return numbers[0].map((_, row) => shared.map((text, n) => text + (n + 1 < shared.length ? numbers[n][row] : "")).join(""));
}

function place(element, at) {
  let was = were.get(element);
  if (!was) were.set(element, (was = Object.fromEntries(MOVED.map((name) => [name, element.getAttribute(name)]))));
  const set = (name, value) => element.setAttribute(name, value.toFixed(2));
  const x = Number(was.x ?? was.cx ?? was.x1);
  switch (element.localName) {
    case "rect": {
      const width = Number(element.dataset.width ?? was.width);
      set("x", at(x));
      set("width", Math.max(at(x + width) - at(x), 1.5));
      break;
    }
    case "circle": set("cx", at(x)); break;
    case "line": set("x1", at(x)); set("x2", at(Number(was.x2))); break;
    case "text": set("x", at(x)); break;
    case "path": if (was.d.includes("C")) element.setAttribute("d", bent(was.d, at));
      else element.setAttribute("d", was.d.replace(/([ML])(-?[\d.]+),/g, (_, c, x) => c + at(Number(x)).toFixed(2) + ","));
  }
}

// a move: its bends stay as they are, whatever the window
function bent(way, at) {
  const [, from, y, toY, to] = way.match(/^M([^,]+),([^C]+)C[^ ]+ [^,]+,([^ ]+) ([^,]+),/);
  const x = at(Number(from)), toX = at(Number(to)), bend = Math.min(26, 8 + (toX - x) / 2);
  return `M${x.toFixed(2)},${y}C${(x + bend).toFixed(2)},${y} ${(toX - bend).toFixed(2)},${toY} ${toX.toFixed(2)},${toY}`;
}

const charts = [...document.querySelectorAll("svg.timed")].map((svg) => new Chart(svg));
const whole = Math.max(0, ...charts.map((chart) => chart.until));
const panel = document.getElementById("window");
let shown = [0, whole];

function look(from, to) {
  const length = Math.min(whole, Math.max(to - from, whole / MOST_ZOOM));
  const begin = Math.max(0, Math.min(from, whole - length));
  shown = [begin, begin + length];
  const [first, last] = panel.querySelectorAll("input");
  const words = shown.map((s) => told(whole <= 600 ? Math.round(s * 100) / 100 : Math.round(s)));
  [first, last].forEach((input, n) => {
    input.value = shown[n] / whole * 1000;
    input.setAttribute("aria-valuetext", words[n]);
  });
  const days = shown.map((s) => charts[0].moment(s));
  panel.querySelector("output").textContent = length === whole ? "the whole run" : `${words.join(" to ")} (${days.join(" to ")})`;
  return Promise.all(charts.map((chart) => chart.draw(...shown, length === whole && chart.until === whole))).then(() => pick(pinned));
}

function zoom(factor, about = (shown[0] + shown[1]) / 2) {
  return look(about - (about - shown[0]) * factor, about + (shown[1] - about) * factor);
}

function pan(part) {
  const by = (shown[1] - shown[0]) * part;
  return look(shown[0] + by, shown[1] + by);
}

const DEEDS = { in: () => zoom(0.5), out: () => zoom(2), earlier: () => pan(-0.5), later: () => pan(0.5), whole: () => look(0, whole) };
if (panel && charts.length) {
  panel.hidden = false;
  panel.querySelectorAll("button").forEach((button) => button.addEventListener("click", () => DEEDS[button.dataset.do]()));
  const [first, last] = panel.querySelectorAll("input");
  first.addEventListener("input", () => look(Math.min(first.value / 1000 * whole, shown[1] - whole / 1000), shown[1]));
  last.addEventListener("input", () => look(shown[0], Math.max(last.value / 1000 * whole, shown[0] + whole / 1000)));
  if (charts.some((chart) => chart.until !== whole)) look(0, whole);
}

// ---------------------------------------------------------------- pointer

function chartAt(event) {
  return charts.find((chart) => chart.svg.contains(event.target));
}

function secondAt(chart, clientX) {
  const box = chart.svg.getBoundingClientRect();
  const x = (clientX - box.left) / box.width * chart.svg.viewBox.baseVal.width;
  return shown[0] + Math.min(1, Math.max(0, (x - chart.start) / (chart.end - chart.start))) * (shown[1] - shown[0]);
}

let brush = null, brushed = false;

document.addEventListener("pointerdown", (event) => {
  const chart = event.button === 0 && event.pointerType !== "touch" && panel && chartAt(event);
  brushed = false;
  if (chart) brush = { chart, x: event.clientX };
});

document.addEventListener("pointermove", (event) => {
  if (!brush || Math.abs(event.clientX - brush.x) < 5) return;
  brush.rect ??= brush.chart.svg.appendChild(drawn("rect"));
  brush.rect.setAttribute("class", "brush");
  const { chart } = brush, part = (s) => chart.start + (s - shown[0]) / (shown[1] - shown[0]) * (chart.end - chart.start);
  const [left, right] = [brush.x, event.clientX].map((x) => part(secondAt(chart, x))).sort((a, b) => a - b);
  for (const [name, value] of [["x", left], ["y", 0], ["width", right - left], ["height", chart.svg.viewBox.baseVal.height]]) brush.rect.setAttribute(name, value);
  event.preventDefault();
});

document.addEventListener("pointerup", (event) => {
  if (brush?.rect) {
    brush.rect.remove();
    brushed = true;
    look(...[brush.x, event.clientX].map((x) => secondAt(brush.chart, x)).sort((a, b) => a - b));
  }
  brush = null;
});

document.addEventListener("wheel", (event) => {
  const chart = event.ctrlKey && panel && chartAt(event);
  if (!chart) return;
  event.preventDefault();
  zoom(event.deltaY < 0 ? 0.8 : 1.25, secondAt(chart, event.clientX));
}, { passive: false });

document.addEventListener("mousemove", (event) => {
  const target = event.target.closest("[data-tip]");
  show(brush?.rect ? null : target, event.clientX, event.clientY);
  const job = event.target.closest("svg [data-job]")?.dataset.job ?? null;
  if (!pinned && job !== followed) pick(job);
  followed = job;
});

document.addEventListener("click", (event) => {
  if (brushed) return;
  const link = event.target.closest("a[data-window], a[data-job], a[data-mark]"), part = event.target.closest("[data-job]");
  if (link) return follow(event, link);
  if (event.target.closest("button, input, label, summary, a")) return;
  pinned = part && part.dataset.job !== pinned ? part.dataset.job : null;
  pick(pinned);
});

document.addEventListener("dblclick", (event) => {
  const chart = panel && chartAt(event);
  if (chart) zoom(0.5, secondAt(chart, event.clientX));
  else event.target.closest(".zoom")?.classList.toggle("large");
});

// a link into a chart: to a time, a job, a mark
async function follow(event, link) {
  event.preventDefault();
  const { window: time, job, mark } = link.dataset;
  if (job) pinned = job;
  if (time && panel) await look(...time.split(" ").map(Number));
  pick(pinned);
  const target = document.querySelector(link.getAttribute("href"));
  const to = (mark && document.getElementById(mark)) || target;
  if (location.hash !== link.hash) history.replaceState(null, "", link.hash);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  (target ?? to).scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  if (to) reach(to);
}

// ---------------------------------------------------------------- keyboard: a picture is one stop, arrows walk through what it tells

function walk(svg) {
  if (!walks.has(svg)) {
    const all = svg.getBoundingClientRect(), chart = charts.find((each) => each.svg === svg), pixel = all.width / svg.viewBox.baseVal.width;
    const [left, right] = chart ? [all.left + chart.start * pixel - 1, all.left + chart.end * pixel + 1] : [-Infinity, Infinity];
    const found = [...svg.querySelectorAll("[data-tip]")].map((element) => {
      const box = element.getBoundingClientRect();
      return { element, left: box.left, right: box.right, x: Math.max(left, box.left), y: Math.round((box.top + box.bottom) / 2 - all.top) };
    }).filter((each) => !each.element.closest(".marks") || (each.right >= left && each.left <= right));
    walks.set(svg, svg.matches(".plot") ? found : found.sort((a, b) => a.y - b.y || a.x - b.x)); // a plot's stand line by line
  }
  return walks.get(svg);
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

function stride(svg, key) {
  const all = walk(svg), n = all.findIndex((each) => each.element === document.activeElement), here = all[n];
  if (key === "ArrowRight" || key === "ArrowLeft") return all[n < 0 ? (key === "ArrowRight" ? 0 : all.length - 1) : n + (key === "ArrowRight" ? 1 : -1)];
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
  const svg = event.target.closest?.("svg"), element = event.target;
  if (!svg || event.ctrlKey || event.altKey || event.metaKey) return;
  const chart = panel && charts.find((each) => each.svg === svg);
  if (/^(Arrow|Home|End)/.test(event.key)) {
    if (event.shiftKey && chart && /Left|Right/.test(event.key)) pan(event.key === "ArrowLeft" ? -0.25 : 0.25);
    else {
      const next = stride(svg, event.key);
      if (next) reach(next.element);
    }
  } else if (event.key === "Enter" || event.key === " ") {
    if (element === svg) svg.closest(".zoom")?.classList.toggle("large");
    else if (element.matches(".many") && chart) {
      const was = were.get(element) ?? { x: element.getAttribute("x"), width: element.getAttribute("width") };
      const from = chart.s(Number(was.x)), to = chart.s(Number(was.x) + Number(was.width));
      svg.focus({ preventScroll: true });
      look(from - (to - from) / 2, to + (to - from) / 2);
    } else if (element.dataset.job) pick((pinned = element.dataset.job === pinned ? null : element.dataset.job));
  } else if (chart && "+-0=".includes(event.key)) {
    svg.focus({ preventScroll: true });
    if (event.key === "0") look(0, whole);
    else zoom(event.key === "-" ? 2 : 0.5);
  } else return;
  event.preventDefault();
});

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

document.addEventListener("focusout", () => show(null));

// ---------------------------------------------------------------- the story

document.getElementById("all")?.addEventListener("change", (event) => {
  document.querySelector(".story").classList.toggle("all", event.target.checked);
});
document.getElementById("more")?.addEventListener("click", async (event) => {
  const rest = await inflated(document.getElementById("rest").textContent);
  document.querySelector(".story").insertAdjacentHTML("beforeend", rest);
  event.target.remove();
});
