// The time line (hosts down, time across) and the queue's curve above it, on canvases that draw only what is seen.
const LABELS = 74, RIGHT = 8, AXIS = 20;

export class TimeLine {
  constructor({ scroll, space, line, curve, hosts, format, chosen, seek }) {
    Object.assign(this, { scroll, space, line, curve, hosts, format, chosen, seek });
    this.from = 0;
    this.to = null; // null: to the end
    this.bars = new Map();
    this.spans = new Map();
    this.points = [];
    this.end = 1;
    this.lane = hosts.length > 100 ? 8 : hosts.length > 40 ? 12 : 17;
    this.row = new Map(hosts.map((host, n) => [host, n]));
    space.style.height = `${hosts.length * (this.lane + 1) + AXIS}px`;
    this.hits = [];
    // sizes are asked for when they change, not in each frame: asking makes the browser lay the page out
    const measure = () => {
      this.width = this.space.clientWidth || 600;
      this.height = this.scroll.clientHeight || 460;
    };
    new ResizeObserver(measure).observe(this.scroll);
    measure();
    this._listen();
  }

  apply(told) {
    for (const [key, bar] of Object.entries(told.bars || {})) this.bars.set(key, bar);
    for (const [key, span] of Object.entries(told.spans || {})) this.spans.set(key, span);
    for (const kept of [this.bars, this.spans]) for (const key of kept.keys()) if (kept.size > 20000) kept.delete(key); else break;
    this.points = told.curve ?? this.points;
    this._lanes = null;
  }

  window() {
    const end = Math.max(this.end, 1e-3);
    return this.to == null ? [Math.min(this.from, end * 0.999), end] : [this.from, this.to];
  }

  // one row a host; jobs that share it have part of its height
  lanes() {
    if (this._lanes) return this._lanes;
    const lanes = new Map();
    for (const bar of [...this.bars.values()].sort((a, b) => a.from_s - b.from_s)) {
      const some = lanes.get(bar.host) || [];
      lanes.set(bar.host, some);
      let free = some.findIndex((last) => (last[last.length - 1].to_s ?? Infinity) <= bar.from_s);
      if (free < 0) free = some.push([]) - 1;
      some[free].push(bar);
    }
    return (this._lanes = lanes);
  }

  _size(canvas, height) {
    const width = this.width, ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
    }
    const c = canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    return [c, width];
  }

  draw(cursor, job, past) {
    const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this._curve(cursor, colour);
    const all = this.hosts.length * (this.lane + 1) + AXIS, height = Math.min(all, this.height);
    const [c, width] = this._size(this.line, height);
    const [from, to] = this.window(), x = (s) => LABELS + ((s - from) / (to - from)) * (width - LABELS - RIGHT);
    const top = this.scroll.scrollTop, first = Math.max(0, Math.floor(top / (this.lane + 1))), last = Math.min(this.hosts.length, Math.ceil((top + height) / (this.lane + 1)));
    c.font = `${this.lane > 10 ? 11 : 8}px system-ui, sans-serif`;
    c.textBaseline = "middle";
    this.hits = [];
    const clip = (s) => Math.max(LABELS, Math.min(width - RIGHT, x(s)));
    const looks = { notice: colour("notice"), closed: colour("closed"), silent: colour("silent") };
    for (let n = first; n < last; n++) {
      const y = n * (this.lane + 1) - top;
      c.fillStyle = colour("lane");
      c.fillRect(LABELS, y, width - LABELS - RIGHT, this.lane);
      c.fillStyle = colour("muted");
      if (this.lane > 10 || n % 3 === 0) c.fillText(this.hosts[n], 2, y + this.lane / 2 + 0.5, LABELS - 6);
    }
    for (const span of this.spans.values()) {
      const n = this.row.get(span.host);
      if (n === undefined || n < first || n >= last || span.from_s > to || (span.to_s ?? to) < from) continue;
      if (past && span.from_s > cursor) continue;
      const x0 = clip(span.from_s), x1 = Math.max(x0 + 1.5, clip(Math.min(span.to_s ?? this.end, past ? cursor : Infinity)));
      c.fillStyle = looks[span.kind];
      c.globalAlpha = span.kind === "notice" ? 0.9 : 0.55;
      c.fillRect(x0, n * (this.lane + 1) - top, x1 - x0, this.lane);
      c.globalAlpha = 1;
      this.hits.push([x0, x1, n, `${span.host}: ${{ notice: "notice", closed: "with its owner", silent: "silent" }[span.kind]}, ${this.format.time(span.from_s)} to ${span.to_s == null ? "now" : this.format.time(span.to_s)}`, ""]);
    }
    const lanes = this.lanes();
    for (let n = first; n < last; n++) {
      const some = lanes.get(this.hosts[n]) || [], thick = Math.max(2, this.lane / Math.max(1, some.length));
      some.forEach((bars, m) => {
        const y = n * (this.lane + 1) - top + m * (this.lane / some.length);
        for (const bar of bars) {
          const ended = bar.to_s ?? this.end;
          if (ended < from || bar.from_s > to || (past && bar.from_s > cursor)) continue;
          const until = past ? Math.min(ended, cursor) : ended;
          const x0 = clip(bar.from_s), xr = clip(Math.min(bar.run_s ?? until, until)), x1 = Math.max(x0 + 1, clip(until));
          c.fillStyle = colour(`c${bar.colour}`);
          const dim = job && bar.job !== job ? 0.2 : 1;
          c.globalAlpha = 0.4 * dim;
          c.fillRect(x0, y + 0.5, xr - x0, thick - 1);
          c.globalAlpha = 0.92 * dim;
          c.fillRect(xr, y + 0.5, x1 - xr, thick - 1);
          c.globalAlpha = dim;
          if (until === ended && ["emergency", "deadline", "agent_lost"].includes(bar.how)) {
            c.fillStyle = colour("bad");
            c.fillRect(x1 - 2, y, 2.5, thick);
          } else if (until === ended && ["finished", "failed", "cancelled"].includes(bar.how)) {
            c.fillStyle = colour(bar.how === "failed" ? "bad" : "ink");
            c.fillRect(x1 - 1, y, 1.5, thick);
          }
          if (thick >= 12 && x1 - xr > bar.job.length * 6.2 + 6) {
            c.fillStyle = colour("on-bar");
            c.fillText(bar.job, xr + 3, y + thick / 2 + 0.5);
          }
          c.globalAlpha = 1;
          const how = bar.how ? `, ${bar.how.replaceAll("_", " ")}` : "";
          this.hits.push([x0, x1, n, `${bar.job}, attempt ${bar.attempt} on ${bar.host}\n${this.format.time(bar.from_s)} to ${bar.to_s == null ? "now" : this.format.time(bar.to_s)}${how}`, bar.job]);
        }
      });
    }
    c.clearRect(0, height - AXIS, width, AXIS);
    c.fillStyle = colour("card");
    c.fillRect(0, height - AXIS, width, AXIS);
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = colour("muted");
    c.strokeStyle = colour("line");
    c.textAlign = "center";
    for (const s of this.ticks(from, to, Math.max(2, width / 110))) {
      const words = this.format.time(s), half = c.measureText(words).width / 2;
      c.fillText(words, Math.min(x(s), width - half - 1), height - AXIS / 2 + 2);
      c.beginPath();
      c.moveTo(x(s), 0);
      c.lineTo(x(s), height - AXIS);
      c.stroke();
    }
    c.textAlign = "start";
    if (cursor >= from && cursor <= to) {
      c.strokeStyle = colour("bad");
      c.beginPath();
      c.moveTo(x(cursor), 0);
      c.lineTo(x(cursor), height - AXIS);
      c.stroke();
    }
  }

  _curve(cursor, colour) {
    this.curve.hidden = !this.points.some(([, length, level]) => length || (level != null && level < 1e6));
    if (this.curve.hidden) return;
    const height = 84, [c, width] = this._size(this.curve, height), [from, to] = this.window();
    const x = (s) => LABELS + ((s - from) / (to - from)) * (width - LABELS - RIGHT);
    const levels = this.points.map((point) => point[2]).filter((level) => level != null && level < 1e6);
    const most = Math.max(1, ...this.points.map((point) => point[1]), ...levels), y = (v) => height - 6 - (v / most) * (height - 18);
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = colour("muted");
    c.fillText("waiting", 2, height - 6);
    c.fillText(`${most.toFixed(most < 10 ? 1 : 0)}`, 2, 14);
    c.save();
    c.beginPath();
    c.rect(LABELS, 0, width - LABELS - RIGHT, height);
    c.clip();
    c.beginPath();
    c.moveTo(x(from), y(0));
    let peak = 0, now = 0, drawn = x(from); // of what one pixel shows, the most; and the length after it
    for (const [s, length] of this.points) {
      const at = x(s);
      if (at - drawn < 0.5 && length <= peak) {
        now = length;
        continue;
      }
      const edge = Math.min(drawn + 1, at); // a queue of no time is one pixel wide
      c.lineTo(edge, y(peak));
      c.lineTo(edge, y(now));
      c.lineTo(at, y(now));
      c.lineTo(at, y(length));
      peak = now = length;
      drawn = at;
    }
    c.lineTo(Math.min(drawn + 1, x(to)), y(peak));
    c.lineTo(Math.min(drawn + 1, x(to)), y(now));
    c.lineTo(x(to), y(now));
    c.lineTo(x(to), y(0));
    c.closePath();
    c.fillStyle = colour("b");
    c.globalAlpha = 0.45;
    c.fill();
    c.globalAlpha = 1;
    if (levels.length) {
      c.beginPath();
      c.strokeStyle = colour("a");
      c.lineWidth = 1.6;
      let last = null;
      for (const [s, , level] of this.points) {
        if (level == null || level > 1e6 || level === last) continue;
        if (last == null) c.moveTo(x(s), y(level));
        else c.lineTo(x(s), y(last));
        c.lineTo(x(s), y(level));
        last = level;
      }
      c.lineTo(x(to), y(last));
      c.stroke();
      c.lineWidth = 1;
    }
    c.restore();
    if (levels.length) {
      c.fillStyle = colour("a");
      c.fillText(`r = ${levels[levels.length - 1].toPrecision(3)}`, LABELS + 4, 12);
    }
    c.strokeStyle = colour("bad");
    c.beginPath();
    c.moveTo(x(cursor), 0);
    c.lineTo(x(cursor), height);
    c.stroke();
  }

  ticks(from, to, most) {
    const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000, 2592000];
    const step = steps.find((s) => (to - from) / s <= most) || steps.at(-1), found = [];
    for (let s = Math.ceil(from / step) * step; s <= to; s += step) found.push(s);
    return found;
  }

  zoom(factor, at) {
    const [from, to] = this.window(), middle = at ?? (from + to) / 2;
    const a = middle - (middle - from) * factor, b = middle + (to - middle) * factor;
    this.from = Math.max(0, a);
    this.to = b >= this.end ? null : Math.max(b, this.from + 0.1);
    if (this.to == null && this.from < this.end * 0.001) this.from = 0;
  }

  move(part) {
    const [from, to] = this.window(), by = Math.max(-from, (to - from) * part);
    this.from = from + by;
    this.to = to + by >= this.end ? null : to + by;
    if (this.to == null) this.from = Math.max(0, this.end - (to - from));
  }

  _at(event) {
    const box = this.line.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top + this.scroll.scrollTop;
    const n = Math.floor(py / (this.lane + 1)), [from, to] = this.window();
    const s = from + ((px - LABELS) / (box.width - LABELS - RIGHT)) * (to - from);
    return { s, hit: this.hits.findLast(([x0, x1, row]) => row === n && px >= x0 - 1 && px <= x1 + 1), host: this.hosts[n] };
  }

  _listen() {
    this.line.addEventListener("mousemove", (event) => {
      const { hit, s } = this._at(event);
      this.line.dataset.tip = hit ? hit[3] : this.format.time(Math.max(0, s));
    });
    this.line.addEventListener("click", (event) => {
      const { hit, s } = this._at(event);
      if (hit?.[4]) this.chosen(hit[4]);
      else this.seek(Math.max(0, Math.min(s, this.end)));
    });
    this.line.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.altKey) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this._at(event).s);
      this.seek(null);
    }, { passive: false });
    this.scroll.addEventListener("scroll", () => this.seek(null));
    this.scroll.addEventListener("keydown", (event) => {
      const act = { ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2), "+": () => this.zoom(0.7), "=": () => this.zoom(0.7), "-": () => this.zoom(1.4), Home: () => { this.from = 0; this.to = null; } }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
      this.seek(null);
    });
  }
}
