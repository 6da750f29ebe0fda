// The map: boxes of hosts and switches where the server says, cables with what is granted and used of them.
const NS = "http://www.w3.org/2000/svg";
const PAYLOAD = 1448 / 1514; // payload of a wire rate
// between two drawings of what is granted and used, on a map of hundreds: that changes everywhere all the time, and to paint the whole
// map for it would hold up what happened to one host
const LOADS_MS = 250;

function add(parent, name, attributes = {}, text = "") {
  const made = parent.appendChild(document.createElementNS(NS, name));
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

export class CampusMap {
  constructor(box, campus, format, chosen) {
    this.layout = campus.layout;
    this.format = format;
    this.reserve = campus.reserve;
    this.nodes = new Map();
    this.cables = [];
    this.shown = new Map(); // host -> what was drawn last
    this.ofHost = new Map(); // host -> its cable's loads, as they were drawn last
    this.loadsAt = -Infinity;
    const { width, height } = this.layout;
    this.svg = add(box, "svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Map of the campus", class: "map" });
    this.svg.style.setProperty("--width", `${width}px`);
    const defs = add(this.svg, "defs");
    const hatch = add(defs, "pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    add(hatch, "rect", { width: 6, height: 6, class: "hatch-base" });
    add(hatch, "line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch-line" });
    this._cables();
    this.ways = add(this.svg, "g");
    for (const [name, node] of Object.entries(this.layout.nodes)) node.kind === "host" ? this._host(name, node, chosen) : this._switch(name, node);
    this._keys(chosen);
  }

  share(rate) {
    return Math.max(0, rate - Math.max(this.reserve.beta * rate, this.reserve.minimum)) * PAYLOAD;
  }

  _centre(name) {
    const node = this.layout.nodes[name];
    return node && [node.x + node.w / 2, node.y + node.h / 2];
  }

  _cables() {
    const layer = add(this.svg, "g");
    for (const { d, x, y, rates } of this.layout.access) {
      add(layer, "path", { d, class: "cable", "stroke-width": 1.5 });
      if (!this.layout.small) add(layer, "text", { x, y, class: "rate" }, [...new Set(rates.map(this.format.rate))].join(" to "));
    }
    this.layout.links.forEach((link, number) => {
      const [a, b] = [this.layout.nodes[link.a], this.layout.nodes[link.b]];
      if (!a || !b) return;
      if (a.kind === "host" || b.kind === "host") {
        this.cables[number] = { host: a.kind === "host" ? link.a : link.b, up: a.kind === "host" ? 0 : 1, link };
        return;
      }
      const { d, x, y } = link;
      const thick = Math.max(3, Math.min(9, 2 * (Math.log10(Math.max(link.rate, 1)) - 4.6)));
      const g = add(layer, "g", { "data-tip": "" });
      const base = add(g, "path", { d, class: "cable", "stroke-width": thick });
      const granted = add(g, "path", { d, class: "granted", "stroke-width": 0 });
      const used = add(g, "path", { d, class: "used", "stroke-width": 0 });
      if (!link.tree) base.setAttribute("stroke-dasharray", "5 4");
      const label = add(layer, "text", { x, y, class: "rate" }, this.format.rate(link.rate));
      this.cables[number] = { trunk: g, base, granted, used, label, thick, link };
    });
  }

  _switch(name, node) {
    const g = add(this.svg, "g", { "data-tip": `${name}, ${node.tier} switch` });
    add(g, "rect", { x: node.x, y: node.y, width: node.w, height: node.h, rx: 6, class: `switch ${node.tier}` });
    const both = `${name} · ${node.building}`; // 13 letters fit into the box
    const words = node.tier === "distribution" && node.building && node.building !== name && both.length <= 13 ? both : name;
    add(g, "text", { x: node.x + node.w / 2, y: node.y + 17, class: "switch-name", "text-anchor": "middle" }, words);
  }

  _host(name, node) {
    const isHost = node.role !== "coordinator";
    const g = add(this.svg, "g", { class: `node ${node.role}`, "data-host": name });
    const box = add(g, "rect", { x: node.x, y: node.y, width: node.w, height: node.h, rx: this.layout.small ? 3 : 5, class: `chip ${node.role}` });
    const made = { g, box, node, bars: [] };
    if (!this.layout.small) {
      add(g, "text", { x: node.x + 6, y: node.y + 13, class: "chip-name" }, name);
      made.words = add(g, "text", { x: node.x + 6, y: node.y + 23, class: "chip-gpus" }, isHost ? "" : "control");
    }
    if (!isHost) return g.setAttribute("data-tip", `${name}: the coordinator`);
    g.setAttribute("role", "button");
    g.setAttribute("tabindex", this.nodes.size ? -1 : 0);
    const inset = this.layout.small ? 2 : 5;
    const width = node.w - 2 * inset;
    ["up", "down"].forEach((way, n) => {
      const y = node.y + node.h - (this.layout.small ? 5 : 8) + n * (this.layout.small ? 2 : 3);
      const size = { x: node.x + inset, y, width: 0, height: this.layout.small ? 1.5 : 2 };
      made.bars.push({ width, granted: add(g, "rect", { ...size, class: "granted" }), used: add(g, "rect", { ...size, class: "used" }) });
    });
    this.nodes.set(name, made);
  }

  _keys(chosen) {
    this.svg.addEventListener("click", (event) => {
      const g = event.target.closest("[data-host]");
      if (g && this.nodes.has(g.dataset.host)) chosen(g.dataset.host);
    });
    this.svg.addEventListener("keydown", (event) => {
      const g = event.target.closest("[data-host]");
      if (!g) return;
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        return chosen(g.dataset.host);
      }
      const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (!way) return;
      event.preventDefault();
      const [x, y] = this._centre(g.dataset.host);
      let best = null;
      for (const name of this.nodes.keys()) {
        const [ox, oy] = this._centre(name);
        const along = (ox - x) * way[0] + (oy - y) * way[1];
        const aside = Math.abs((ox - x) * way[1]) + Math.abs((oy - y) * way[0]);
        const far = along + 3 * aside;
        if (along > 1 && (!best || far < best.far)) best = { name, far };
      }
      if (best) this.focus(best.name);
    });
  }

  focus(name) {
    for (const { g } of this.nodes.values()) if (g.getAttribute("tabindex") === "0") g.setAttribute("tabindex", -1);
    const { g } = this.nodes.get(name);
    g.setAttribute("tabindex", 0);
    g.focus();
  }

  draw(view, atS, picked, now) {
    const changed = view.impaired !== this.impaired; // a cable is slower, down or well again
    if (now || changed || this.nodes.size <= 100 || performance.now() - this.loadsAt >= LOADS_MS) this._loads(view);
    for (const [name, made] of this.nodes) this._drawHost(name, made, view, atS, picked);
    this._ways(view, picked);
  }

  _loads(view) {
    this.loadsAt = performance.now();
    this.impaired = view.impaired;
    const load = new Map(); // number of a directed link -> [granted, used]
    for (const flow of view.flows.values())
      for (const link of flow.path) {
        const sum = load.get(link) || [0, 0];
        load.set(link, [sum[0] + flow.grant, sum[1] + (flow.use || 0)]);
      }
    const rateOf = (number, way) => view.links.get(String(2 * number + way))?.rate ?? this.layout.links[number].rate;
    this.cables.forEach((cable, number) => {
      const both = [0, 1].map((way) => {
        const rate = rateOf(number, way);
        const share = this.share(rate);
        const [granted, used] = load.get(2 * number + way) || [0, 0];
        return { rate, share, granted, used, part: share > 0 ? Math.min(1, granted / share) : granted > 0 ? 1 : 0, usedPart: share > 0 ? Math.min(1, used / share) : 0 };
      });
      const bad = both.some(({ rate }) => rate < cable.link.rate * 0.999);
      if (cable.host) return this.ofHost.set(cable.host, { up: both[cable.up], down: both[1 - cable.up], bad });
      const most = both[0].part >= both[1].part ? both[0] : both[1];
      cable.granted.setAttribute("stroke-width", most.part ? 1 + most.part * (cable.thick - 1) : 0);
      cable.used.setAttribute("stroke-width", Math.max(both[0].usedPart, both[1].usedPart) * cable.thick);
      cable.base.classList.toggle("bad", bad);
      const tell = (way, n) => {
        const [from, to] = n ? [cable.link.b, cable.link.a] : [cable.link.a, cable.link.b];
        return `${from} > ${to}: ${this.format.rate(way.granted)} granted, ${this.format.rate(way.used)} used of ${this.format.rate(way.share)}${way.rate < cable.link.rate * 0.999 ? (way.rate > 0 ? `; slower: ${this.format.rate(way.rate)}` : "; down") : ""}`;
      };
      cable.trunk.setAttribute("data-tip", both.map(tell).join("\n"));
      cable.label.textContent = bad ? (both[0].rate > 0 ? `slower: ${this.format.rate(both[0].rate)}` : "down") : this.format.rate(cable.link.rate);
    });
  }

  _drawHost(name, made, view, atS, picked) {
    const row = view.hosts.get(name) || { state: "absent", jobs: [], gpus: made.node.gpus };
    const link = this.ofHost.get(name);
    const busy = row.state === "lent" && row.jobs.length;
    const state = busy ? "busy" : row.state;
    const left = row.until_s == null ? "" : ` ${Math.max(0, row.until_s - atS).toFixed(0)} s`;
    const few = row.jobs.length > 1 ? `${row.jobs.length} jobs` : row.jobs[0] || "";
    const words = { busy: few, lent: "idle", noticed: `notice${left}`, reclaimed: "owner", lost: "silent", absent: "absent" }[state] || state;
    const parts = link ? [link.up, link.down].map((way) => [way.part.toFixed(1), way.usedPart.toFixed(1)]) : [];
    const drawn = `${state}|${words}|${parts}|${link?.bad}|${picked === name}|${row.jobs}`;
    if (this.shown.get(name) === drawn) return;
    this.shown.set(name, drawn);
    made.g.setAttribute("class", `node ${made.node.role} ${state}${link?.bad ? " cut" : ""}${picked === name ? " picked" : ""}`);
    if (made.words) made.words.textContent = words.length > 11 ? `${words.slice(0, 10)}…` : words;
    made.bars.forEach((bar, n) => {
      bar.granted.setAttribute("width", (parts[n]?.[0] || 0) * bar.width);
      bar.used.setAttribute("width", (parts[n]?.[1] || 0) * bar.width);
    });
    const told = { busy: `runs ${row.jobs.join(", ")}`, lent: "lent, idle", noticed: `its notice ends in${left}`, reclaimed: "with its owner", lost: "silent", absent: "absent" }[state];
    const cable = link ? `; up ${this.format.rate(link.up.granted)} granted, down ${this.format.rate(link.down.granted)}${link.bad ? `; its cable: ${link.up.rate > 0 ? `slower, ${this.format.rate(link.up.rate)}` : "down"}` : ""}` : "";
    made.g.setAttribute("aria-label", `${name}, building ${made.node.building}: ${told}${cable}`);
    made.g.setAttribute("data-tip", `${name} (${made.node.address}), ${made.node.gpus} x ${made.node.model}\n${told}${cable}`);
  }

  // ways of migrations, and of all that the chosen host sends or gets
  _ways(view, picked) {
    const wanted = [...view.flows.entries()].filter(([, flow]) => flow.class !== "presync" || flow.from === picked || flow.to === picked).slice(0, 60);
    const key = wanted.map(([name, flow]) => `${name}${flow.class}`).join();
    if (key === this.waysKey) return;
    this.waysKey = key;
    this.ways.replaceChildren();
    for (const [name, flow] of wanted) {
      const stops = [flow.from];
      for (const number of flow.path) {
        const link = this.layout.links[number >> 1];
        stops.push(number & 1 ? link.a : link.b);
      }
      const points = stops.map((stop) => this._centre(stop)).filter(Boolean);
      if (points.length < 2) continue;
      const d = points.map(([x, y], n) => (n ? `L${x},${y}` : `M${x},${y}`)).join("");
      add(this.ways, "path", { d, class: `way ${flow.class}`, "data-flow": name });
    }
  }
}
