"use strict";
const tip = document.getElementById("tip");
let pinned = null;

function pick(svg, job) {
  document.querySelectorAll(".hot").forEach((e) => e.classList.remove("hot"));
  document.querySelectorAll("svg.picked").forEach((s) => s.classList.remove("picked"));
  if (!svg || !job) return;
  svg.classList.add("picked");
  svg.querySelectorAll("[data-job]").forEach((e) => e.classList.toggle("hot", e.dataset.job === job));
}

document.addEventListener("mousemove", (event) => {
  const told = event.target.closest("[data-tip]");
  tip.hidden = !told;
  if (told) {
    tip.textContent = told.dataset.tip;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (event.clientY + box.height + 24 < innerHeight ? event.clientY + 16 : event.clientY - box.height - 10) + "px";
  }
  if (!pinned) {
    const part = event.target.closest("svg [data-job]");
    pick(part && part.closest("svg"), part && part.dataset.job);
  }
});

document.addEventListener("click", (event) => {
  const part = event.target.closest("[data-job]");
  pinned = part && part.dataset.job !== pinned ? part.dataset.job : null;
  pick(document.querySelector("svg.timeline"), pinned);
  if (pinned && !part.closest("svg")) document.querySelector("svg.timeline")?.scrollIntoView({ behavior: "smooth" });
});

document.addEventListener("dblclick", (event) => {
  event.target.closest("figure, .zoom")?.classList.toggle("large");
});

const all = document.getElementById("all"); // a page without a story has none
all?.addEventListener("change", () => document.querySelector(".story").classList.toggle("all", all.checked));
