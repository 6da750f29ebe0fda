// The live page. Two pictures: `head`, which /api/head keeps up to date, and `view`, what is shown: the head itself, or a
// moment of the past (/api/at), one after another in a replay. Everything is drawn from `view`, once a frame at most.
import { CampusMap } from "/campus.js";
import { TimeLine } from "/charts.js";

const $ = (id) => document.getElementById(id);
const MAX_LINES = 500, MAX_ROWS = 250, POLL_MS = 250, FRAME_MS = 100, SPEEDS = [0.1, 0.5, 1, 2, 5, 10, 60, 600, 3600, 36000];

const SECONDS = { s: 1, min: 60, h: 3600, d: 86400 }; // that times are written in at a reader's wish
const inUnit = (s) => `${+(s / SECONDS[$("unit").value]).toPrecision(4)} ${$("unit").value}`;

const format = {
  duration(s) {
    if (s == null || !isFinite(s)) return "-";
    if ($("unit").value) return inUnit(s);
    if (s === 0) return "0 s";
    if (s < 1e-3) return `${(s * 1e6).toFixed(0)} µs`;
    if (s < 1) return `${(s * 1e3).toFixed(0)} ms`;
    if (s < 120) return `${s.toFixed(s < 10 ? 2 : 1)} s`;
    if (s < 7200) return `${(s / 60).toFixed(1)} min`;
    return s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${(s / 86400).toFixed(1)} d`;
  },
  rate(bytes) {
    const bits = bytes * 8;
    const [by, unit] = bits >= 1e9 ? [1e9, "Gbit/s"] : bits >= 1e6 ? [1e6, "Mbit/s"] : bits >= 1e3 ? [1e3, "kbit/s"] : [1, "bit/s"];
    return `${+(bits / by).toPrecision(3)} ${unit}`;
  },
  size(bytes) {
    const [by, unit] = bytes >= 1e9 ? [1e9, "GB"] : bytes >= 1e6 ? [1e6, "MB"] : bytes >= 1e3 ? [1e3, "kB"] : [1, "B"];
    return `${+(bytes / by).toPrecision(3)} ${unit}`;
  },
  // a moment: seconds, then minutes and hours, then days
  time(s) {
    if ($("unit").value) return inUnit(s);
    if (s < 120) return `${s.toFixed(s < 10 ? 2 : 1)} s`;
    const two = (n) => String(Math.floor(n)).padStart(2, "0");
    const clock = `${two((s % 86400) / 3600)}:${two((s % 3600) / 60)}:${two(s % 60)}`;
    return s < 86400 ? clock : `day ${Math.floor(s / 86400) + 1}, ${clock}`;
  },
};

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

function element(name, { text = "", className = "", ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  if (text !== "") made.textContent = text;
  if (className) made.className = className;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

class Picture {
  constructor() {
    for (const part of ["hosts", "jobs", "flows", "links"]) this[part] = new Map();
    this.at_s = 0;
    this.impaired = ""; // those that are slower or down, as text
    this.queue = { length: 0, level: null, mean_delay_s: 0, mean_cost: 0, waiting: [] };
    this.totals = { jobs_finished: 0, jobs_failed: 0, migrations_in_time: 0, work_lost_s: 0 };
    this.story = [];
  }

  apply(told) {
    if (told.hosts) {
      for (const part of ["hosts", "jobs", "flows", "links"]) this[part] = new Map(Object.entries(told[part]));
      ({ at_s: this.at_s, queue: this.queue, totals: this.totals } = told);
      this.impaired = JSON.stringify(told.links);
    }
    for (const line of told.story || []) if (line.n > (this.story.at(-1)?.n ?? 0)) this.story.push(line);
    if (this.story.length > MAX_LINES) this.story.splice(0, this.story.length - MAX_LINES);
  }
}

const head = new Picture();
const S = { view: head, mode: "follow", campus: null, map: null, line: null, now: { s: 0, at: 0 }, loaded: false, over: false, host: "", job: "", fact: 0, speed: 1, told: "notable", token: "" };
let drawing = false, urgent = false;

// draw in the next frame; `now`: what a person has asked for, all of it, however lately it was drawn
function draw(now = true) {
  urgent ||= now;
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    part.drawn = false;
    if (S.campus) render(urgent);
    urgent = false;
  });
}

// parts that are drawn seldom enough for a slow machine, and only while they can be seen
const lately = new Map(), seen = new Set();
function part(id, everyMs, now, act) {
  if (!seen.has(id)) return;
  const wait = everyMs - (performance.now() - (lately.get(id) ?? -1e9));
  if (now || (wait <= 0 && !(everyMs && part.drawn))) {
    lately.set(id, performance.now());
    part.drawn ||= everyMs > 0; // but for the map, one a frame
    act();
  } else if (!part.timer) {
    part.timer = setTimeout(() => {
      part.timer = 0;
      draw(false);
    }, Math.max(wait, 20));
  }
}

// ---------------------------------------------------------------- time

const live = () => S.campus?.world === "live" && !S.over;
function nowS() {
  return live() ? S.now.s + (performance.now() - S.now.at) / 1000 : S.now.s;
}
function cursorS() {
  return S.mode === "follow" ? nowS() : S.view.at_s;
}

function follow() {
  S.mode = "follow";
  S.view = head;
  draw();
}

// a moment of the past into the view; false: something else is shown by now
async function show(view, s) {
  const mode = S.mode, told = await (await ask(`/api/at?s=${s}`)).json();
  if (S.view !== view || S.mode !== mode) return false;
  view.story = [];
  view.apply(told);
  return true;
}

let wanted = null, asking = false; // the moment that was asked for last; one question at a time
async function seek(s) {
  S.mode = "at";
  if (S.view === head) S.view = new Picture();
  S.view.at_s = s;
  wanted = s;
  draw();
  if (asking) return;
  asking = true;
  try {
    while (wanted !== null) {
      const s = wanted;
      wanted = null;
      if (!(await show(S.view, s))) break;
      S.view.at_s = wanted ?? s; // the slider may have moved on
      draw();
    }
  } finally {
    asking = false;
  }
}

async function play() {
  if (S.mode === "play") {
    S.mode = "at";
    return draw();
  }
  const first = S.mode === "follow" || S.view.at_s >= nowS() - 1e-6 ? 0 : S.view.at_s;
  S.mode = "play";
  const view = (S.view = new Picture());
  view.at_s = first;
  draw();
  for (let before = performance.now(); ; ) {
    await pause(FRAME_MS);
    const now = performance.now(), s = Math.min(nowS(), view.at_s + (S.speed * (now - before)) / 1000);
    before = now;
    if (S.mode !== "play" || !(await show(view, s).catch(() => false))) break;
    draw(false);
    if (s < nowS()) continue;
    S.mode = "at";
    if (live()) follow();
    break;
  }
  draw();
}

// ---------------------------------------------------------------- drawing

function render(now) {
  const view = S.view, at = cursorS(), end = nowS();
  document.documentElement.dataset.mode = S.mode;
  $("time").max = Math.max(end, 1e-3);
  if (document.activeElement !== $("time") || S.mode !== "at") $("time").value = at;
  $("clock").textContent = format.time(at);
  $("time").setAttribute("aria-valuetext", format.time(at));
  $("play").textContent = S.mode === "play" ? "❚❚" : "▶";
  $("play").setAttribute("aria-label", S.mode === "play" ? "Pause" : "Play");
  $("now").hidden = !live();
  $("now").setAttribute("aria-pressed", S.mode === "follow");
  part("tiles", 200, now, () => tiles(view));
  const many = S.line.hosts.length > 100 ? 3 : 1; // a large campus is drawn less often, but for its map
  part("map", 0, now, () => S.map.draw(view, at, S.host, now));
  part("line-scroll", 250 * many, now, () => {
    S.line.end = end;
    S.line.draw(at, S.job, S.mode !== "follow" && live());
  });
  host(view, at);
  part("jobs", 500 * many, now, () => jobs(view));
  part("flows", 500 * many, now, () => flows(view));
  part("story", 100 * many, now, () => story(view));
}

function tiles(view) {
  const hosts = [...view.hosts].filter(([name]) => S.campus.layout.nodes[name]?.role !== "coordinator").map(([, host]) => host), count = (test) => hosts.filter(test).length;
  const busy = count((h) => h.state === "lent" && h.jobs.length), lent = count((h) => h.state === "lent");
  const running = [...view.jobs.values()].filter((job) => ["running", "moving", "starting"].includes(job.phase)).length;
  const t = view.totals, q = view.queue;
  const told = [
    [`${busy} / ${lent}`, "hosts busy of those lent"],
    [count((h) => ["noticed", "reclaimed"].includes(h.state)), "with their owners"],
    [running, "jobs on hosts"],
    [q.length, "jobs wait"],
    [q.level == null ? "-" : q.level > 1e6 ? "no limit" : q.level.toFixed(2), "r: jobs that may wait"],
    [format.duration(q.mean_delay_s), `mean delay; mean cost ${q.mean_cost.toFixed(2)}`],
    [`${t.jobs_finished}`, `finished, ${t.jobs_failed} failed`],
    [format.duration(t.work_lost_s), `work lost; ${t.migrations_in_time} move${t.migrations_in_time === 1 ? "" : "s"} in time`],
  ];
  const box = $("tiles");
  if (!box.children.length) for (const _ of told) box.append(element("div", { className: "tile" }, element("b"), element("span")));
  told.forEach(([value, words], n) => {
    const [b, span] = box.children[n].children;
    box.children[n].hidden = value === "-"; // nothing to show yet
    if (b.textContent !== String(value)) b.textContent = value;
    if (span.textContent !== words) span.textContent = words;
  });
}

let hostShown = "";
function host(view, at) {
  const row = view.hosts.get(S.host), node = S.campus.layout.nodes[S.host];
  if (!row || !node) return;
  const jobs = row.jobs.map((name) => [name, view.jobs.get(name)]);
  const left = row.until_s == null ? "" : `, closed in ${format.duration(Math.max(0, row.until_s - at))}`;
  const states = { lent: row.jobs.length ? "lent, busy" : "lent, idle", noticed: "its owner gave notice", reclaimed: "with its owner", lost: "silent", absent: "absent" };
  const away = [...view.flows.values()].filter((flow) => flow.from === S.host), home = [...view.flows.values()].filter((flow) => flow.to === S.host);
  const sum = (flows) => flows.reduce((total, flow) => total + flow.grant, 0);
  const facts = [
    ["state", states[row.state] + left],
    ["building", node.building],
    ["GPUs", `${row.jobs.length} of ${row.gpus} used, ${node.model}`],
    ["address", node.address],
    ["sends", `${away.length} flows, ${format.rate(sum(away))} granted`],
    ["gets", `${home.length} flows, ${format.rate(sum(home))} granted`],
  ];
  if (row.egress) facts.push(["egress, last heartbeat", `${format.rate(row.egress[0])} migration, ${format.rate(row.egress[1])} research`]);
  const shown = JSON.stringify([S.host, facts, jobs.map(([name, job]) => [name, job?.phase, job?.step])]);
  if (shown === hostShown) return;
  hostShown = shown;
  $("host-title").textContent = S.host;
  const list = element("dl");
  for (const [what, words] of facts) list.append(element("dt", { text: what }), element("dd", { text: words }));
  const running = element("ul");
  for (const [name, job] of jobs) {
    const button = element("button", { type: "button", className: "plain", text: name });
    button.addEventListener("click", () => chooseJob(name));
    running.append(element("li", {}, button, job ? ` ${job.phase}, step ${job.step} of ${job.steps}` : ""));
  }
  $("host").replaceChildren(list, running);
  $("owner").hidden = !(S.campus.switches && node.role === "volunteer");
}

// rows are kept and changed in place: 500 jobs that report a step each second must not cost 500 new rows
function table(body, rows, cells, key) {
  const kept = new Map([...body.children].map((tr) => [tr.dataset.key, tr]));
  let place = body.firstElementChild;
  for (const row of rows) {
    const name = key(row), told = cells(row), shown = JSON.stringify(told);
    let tr = kept.get(name);
    if (tr) kept.delete(name);
    else tr = element("tr", { "data-key": name });
    if (tr !== place) body.insertBefore(tr, place);
    else place = place.nextElementSibling;
    if (tr.dataset.shown === shown) continue;
    tr.dataset.shown = shown;
    tr.className = told.picked ? "picked" : "";
    tr.replaceChildren(...told.cells.map((cell) => makeCell(cell)));
  }
  for (const tr of kept.values()) tr.remove();
}

function makeCell(cell) {
  if (typeof cell === "string") return element("td", { text: cell });
  if (cell.job) {
    const button = element("button", { type: "button", className: "plain", text: cell.job });
    button.addEventListener("click", () => chooseJob(cell.job));
    return element("td", {}, button);
  }
  if (cell.why !== undefined) return element("td", { className: "why", text: cell.why, title: cell.why });
  const granted = element("i"), used = element("i");
  granted.style.width = `${cell.parts[0] * 100}%`;
  used.style.width = `${cell.parts[1] * 100}%`;
  return element("td", {}, element("span", { className: "meter" }, granted, used), cell.words);
}

const ORDER = { moving: 0, interrupted: 1, starting: 2, running: 3, waiting: 4, cancelling: 5, failed: 6, cancelled: 7, finished: 8 };
function jobs(view) {
  const find = $("find-job").value.trim().toLowerCase();
  const rows = [...view.jobs.entries()].filter(([name, job]) => !find || [name, job.host, job.phase, job.standby].some((text) => text.toLowerCase().includes(find)));
  rows.sort(([a, one], [b, other]) => ORDER[one.phase] - ORDER[other.phase] || a.length - b.length || a.localeCompare(b));
  $("jobs-count").textContent = rows.length > MAX_ROWS ? `${MAX_ROWS} of ${rows.length} shown` : `${rows.length}`;
  table($("jobs"), rows.slice(0, MAX_ROWS), ([name, job]) => ({
    picked: name === S.job,
    cells: [
      { job: name },
      job.phase,
      (job.to ? `${job.host} → ${job.to}` : job.host || (job.on_demand ? "on demand" : "")),
      { parts: [job.step, job.saved ?? 0].map((step) => Math.min(1, step / job.steps)), words: `${job.step}/${job.steps}` },
      job.interval_s ? `${format.duration(job.interval_s)} to ${job.standby}` : "",
      { why: job.reason },
    ],
  }), ([name]) => name);
}

function flows(view) {
  const rows = [...view.flows.entries()].sort((a, b) => (a[1].class === "presync") - (b[1].class === "presync") || b[1].grant - a[1].grant || a[0].localeCompare(b[0]));
  $("flows-count").textContent = rows.length > MAX_ROWS ? `${MAX_ROWS} of ${rows.length} shown` : `${rows.length}`;
  const most = Math.max(1, ...rows.map(([, flow]) => flow.grant));
  table($("flows"), rows.slice(0, MAX_ROWS), ([, flow]) => ({
    picked: flow.job === S.job,
    cells: [
      { job: flow.job },
      `${flow.from} → ${flow.to}`,
      { presync: "checkpoint", planned: "move" }[flow.class] ?? flow.class,
      { parts: [flow.grant / most, Math.min(1, (flow.use ?? 0) / most)], words: flow.use == null ? format.rate(flow.grant) : `${format.rate(flow.grant)}, ${format.rate(flow.use)}` },
      flow.held_by || "its own cap",
    ],
  }), ([key]) => key);
}

let storyKey = "";
function story(view) {
  const told = view.story.filter((line) => (S.told === "all" || (S.told === "decided" ? line.decided : line.notable)) && (!S.job || line.job === S.job));
  const key = `${S.mode === "follow"}|${S.told}|${S.job}|${told.at(-1)?.n}|${told[0]?.n}|${told.length}`;
  $("story-of").textContent = [S.job && `of ${S.job} only`, !told.length && "none yet"].filter(Boolean).join(": ");
  if (key !== storyKey) {
    storyKey = key;
    const list = $("story"), kept = new Map([...list.children].map((li) => [li.dataset.fact, li]));
    const items = told.slice(-200).reverse().map((line) => kept.get(String(line.n)) || storyItem(line));
    list.replaceChildren(...items);
  }
  for (const li of $("story").children) li.setAttribute("aria-selected", li.dataset.fact === String(S.fact));
}

function storyItem(line) {
  const li = element("li", { role: "option", "data-fact": line.n, id: `fact-${line.n}`, className: line.tone });
  li.append(element("time", { text: format.time(line.at_s) }), element("span", { text: line.text }));
  if (line.decided) li.append(element("i", { text: "⚖", title: "a decision" }));
  return li;
}

// ---------------------------------------------------------------- choosing

function chooseHost(name) {
  S.host = name;
  $("answer").textContent = "";
  hostShown = "";
  S.map.focus(name);
  draw();
}

function chooseJob(name) {
  S.job = S.job === name ? "" : name;
  draw();
}

let asked = 0;
async function chooseFact(number) {
  S.fact = number;
  const mine = ++asked, box = $("fact");
  $("story").setAttribute("aria-activedescendant", `fact-${number}`);
  draw();
  let told;
  try {
    told = await (await ask(`/api/fact?n=${number}`)).json();
  } catch {
    told = { text: "the page's process does not answer", fields: [] };
  }
  if (mine !== asked) return;
  const list = element("dl");
  for (const [what, words] of told.fields) list.append(element("dt", { text: what }), element("dd", { text: words }));
  box.replaceChildren(element("p", { className: "verdict", text: told.text }), list);
}

async function owner(event) {
  event.preventDefault();
  const what = event.submitter.value, answer = $("answer");
  const wish = { host: S.host, do: what === "return" ? "return" : "reclaim", notice_s: what === "notice" ? Number($("notice").value) : 0 };
  answer.textContent = "…";
  try {
    const reply = await ask("/api/switch", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(wish) });
    answer.textContent = (await reply.json()).words;
  } catch {
    answer.textContent = "the page's process does not answer";
  }
}

// the token is the part of the printed address behind #; other users of the machine do not have it
function ask(path, options = {}) {
  return fetch(path, { ...options, headers: { ...options.headers, Authorization: `Bearer ${S.token}` } });
}

// ---------------------------------------------------------------- beginning

function state(words, tone) {
  $("state").textContent = words;
  $("state").className = `pill ${tone}`;
}

function told(message) {
  head.apply(message);
  S.line.apply(message);
  S.now = { s: message.now_s, at: performance.now() };
  const { loaded, over, broken, health } = message;
  if (loaded && !S.loaded && S.campus.world !== "live") beginReplay(message.now_s);
  Object.assign(S, { loaded, over });
  $("count").textContent = `${head.jobs.size} jobs listed, ${S.line.bars.size} attempts`;
  if (broken) state(broken, "bad");
  else if (!loaded) state("reading the run", "warn");
  else if (S.campus.world !== "live") state("replay", "calm");
  else if (over) state("the campus is gone; all of its run is here", "warn");
  else state(health.ok ? "live" : "the coordinator does not answer", health.ok ? "good" : "bad");
  draw(false);
}

// a run that is over is shown at its end; ▶ plays it from its beginning, at a speed at which it lasts a minute or so
function beginReplay(end) {
  S.speed = SPEEDS.find((speed) => speed >= end / 90) ?? SPEEDS.at(-1);
  $("speed").value = S.speed;
}

async function watchHead() {
  for (let seen = { version: 0, number: 0 }; !S.over; await pause(POLL_MS)) {
    try {
      const reply = await ask(`/api/head?version=${seen.version}&number=${seen.number}`), message = await reply.json();
      if (reply.status === 401) return state(message.words, "bad");
      told(message);
      seen = message;
    } catch {
      state("not connected: trying again", "bad");
    }
  }
}

function tips() {
  const tip = $("tip");
  document.addEventListener("mousemove", (event) => {
    const part = event.target.closest?.("[data-tip]");
    tip.hidden = !part?.dataset.tip;
    if (tip.hidden) return;
    tip.textContent = part.dataset.tip;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${event.clientY + box.height + 24 < innerHeight ? event.clientY + 16 : event.clientY - box.height - 10}px`;
  });
}

async function begin() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) history.replaceState(null, "", "/");
  S.token = given || sessionStorage.getItem("token") || "";
  sessionStorage.setItem("token", S.token);
  const reply = await ask("/api/campus"), campus = await reply.json();
  if (!reply.ok) return state(campus.words, "bad");
  S.campus = campus;
  document.title = `${S.campus.name} · ReclaimNet`;
  $("name").textContent = S.campus.name;
  $("world").textContent = { live: "live campus", recorded: "recorded live run", virtual: "virtual run" }[S.campus.world];
  const nodes = Object.entries(S.campus.layout.nodes).filter(([, node]) => node.kind === "host" && node.role !== "coordinator");
  document.querySelector(".board").classList.toggle("wide", S.campus.layout.width > 900);
  S.map = new CampusMap($("map"), S.campus, format, chooseHost);
  S.line = new TimeLine({ scroll: $("line-scroll"), space: $("line-space"), line: $("line"), curve: $("curve"), hosts: nodes.map(([name]) => name), format, chosen: chooseJob, seek: (s) => (s === null ? draw() : seek(s)) });
  for (const speed of SPEEDS) $("speed").append(element("option", { value: speed, text: `× ${speed}` }));
  $("speed").value = S.speed;
  $("speed").addEventListener("change", (event) => {
    S.speed = Number(event.target.value);
  });
  $("unit").addEventListener("change", () => {
    hostShown = storyKey = "";
    $("story").replaceChildren();
    draw();
  });
  $("time").addEventListener("input", (event) => seek(Number(event.target.value)));
  $("time").addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -0.01, ArrowRight: 0.01, PageDown: -0.1, PageUp: 0.1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const s = Math.max(0, Math.min(nowS(), cursorS() + steps[event.key] * nowS()));
    event.target.value = s;
    seek(s);
  });
  $("play").addEventListener("click", play);
  $("now").addEventListener("click", follow);
  $("owner").addEventListener("submit", owner);
  $("find-job").addEventListener("input", () => draw());
  for (const radio of document.querySelectorAll("input[name=told]")) radio.addEventListener("change", () => { S.told = radio.value; draw(); });
  $("story").addEventListener("click", (event) => {
    const li = event.target.closest("li");
    if (li) chooseFact(Number(li.dataset.fact));
  });
  $("story").addEventListener("keydown", (event) => {
    const items = [...$("story").children], at = items.findIndex((li) => li.dataset.fact === String(S.fact));
    const next = { ArrowDown: items[at + 1], ArrowUp: items[Math.max(0, at - 1)], Home: items[0], End: items.at(-1) }[event.key];
    if (!next) return;
    event.preventDefault();
    next.scrollIntoView({ block: "nearest" });
    chooseFact(Number(next.dataset.fact));
  });
  addEventListener("resize", () => draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) isIntersecting ? seen.add(target.dataset.part) : seen.delete(target.dataset.part);
    draw();
  }, { rootMargin: "200px" });
  for (const id of ["tiles", "map", "line-scroll", "jobs", "flows", "story"]) {
    const box = $(id).closest(".card, .tiles");
    box.dataset.part = id;
    watch.observe(box);
  }
  tips();
  watchHead();
}

begin();
