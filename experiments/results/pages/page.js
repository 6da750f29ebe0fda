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

// ---------------------------------------------------------------- the story

document.getElementById("all")?.addEventListener("change", (event) => {
  document.querySelector(".story").classList.toggle("all", event.target.checked);
});
