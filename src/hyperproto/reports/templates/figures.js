"use strict";
// Three things for a page of figures: words where a reader points, series that can be switched off, tables that sort.

const tip = document.getElementById("tip");
const REACH = 14; // pixels from a point within which it is meant

function show(parts, event) {
  tip.replaceChildren();
  for (const part of parts) {
    const block = document.createElement("div");
    block.textContent = part.text;
    tip.append(block);
    if (part.image) {
      const image = document.createElement("img");
      image.src = part.image;
      image.alt = part.text;
      tip.append(image);
    }
  }
  tip.hidden = false;
  const width = document.documentElement.clientWidth;
  const left = Math.min(event.clientX + 16, width - tip.offsetWidth - 8);
  const below = event.clientY + 16 + tip.offsetHeight < window.innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${below ? event.clientY + 16 : Math.max(8, event.clientY - tip.offsetHeight - 16)}px`;
}

function cell(spot, x, y, tips) {
  const [left, top, right, bottom] = spot.box;
  if (x < left || x >= right || y < top || y >= bottom) return null;
  const row = Math.floor((y - top) / (bottom - top) * spot.rows.length);
  const column = Math.floor((x - left) / (right - left) * spot.columns.length);
  const value = { text: `${spot.unit}: ${spot.values[row][column]}` };
  return [tips[spot.rows[row]], tips[spot.columns[column]], value];
}

function nearest(spots, hidden, x, y, width, height) {
  let found = null, least = REACH * REACH;
  for (const spot of spots) {
    if (!spot.at || hidden.has(spot.series)) continue;
    spot.at.forEach(([px, py], n) => {
      const distance = ((px - x) * width) ** 2 + ((py - y) * height) ** 2;
      if (distance < least) {
        least = distance;
        found = spot.tips[n];
      }
    });
  }
  return found;
}

for (const picture of document.querySelectorAll(".picture")) {
  const data = JSON.parse(picture.querySelector("script").textContent);
  const drawing = picture.querySelector("svg");
  const hidden = new Set();
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
    for (const spot of data.spots) {
      const parts = spot.box && cell(spot, x, y, data.tips);
      if (parts) return show(parts, event);
    }
    const point = nearest(data.spots, hidden, x, y, box.width, box.height);
    if (point === null) tip.hidden = true;
    else show([data.tips[point]], event);
  });
  drawing.addEventListener("pointerleave", () => { tip.hidden = true; });
  for (const box of picture.querySelectorAll("input[data-series]")) {
    box.addEventListener("change", () => {
      const number = Number(box.dataset.series);
      if (box.checked) hidden.delete(number);
      else hidden.add(number);
      for (const part of drawing.querySelectorAll(`[id^="${picture.id}-series-${number}-"]`)) {
        part.style.display = box.checked ? "" : "none";
      }
    });
  }
}

function sortBy(table, column, head) {
  const rising = head.getAttribute("aria-sort") !== "ascending";
  for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", rising ? "ascending" : "descending");
  const key = (row) => row.cells[column].textContent.trim();
  const rows = [...table.rows].slice(1);
  rows.sort((a, b) => {
    const [one, two] = [key(a), key(b)];
    if (!one || !two) return one ? -1 : two ? 1 : 0; // what is empty comes last, either way
    const [x, y] = [parseFloat(one), parseFloat(two)];
    const words = Number.isNaN(x) - Number.isNaN(y); // numbers come before words
    const order = words || (Number.isNaN(x) ? one.localeCompare(two) : x - y);
    return rising ? order : -order;
  });
  for (const row of rows) row.parentNode.append(row);
}

for (const table of document.querySelectorAll("table")) {
  [...table.rows[0].cells].forEach((head, column) => {
    head.tabIndex = 0;
    head.title = "sort by this column";
    head.addEventListener("click", () => sortBy(table, column, head));
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter") sortBy(table, column, head);
    });
  });
}
