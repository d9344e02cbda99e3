addEventListener("DOMContentLoaded", () => document.querySelectorAll("table.sheet").forEach(table => {
  const body = table.tBodies[0], first = [...body.rows], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => head.querySelector("button").addEventListener("click", () => {
    const words = head.classList.contains("words");
    const orders = words ? ["ascending", "descending", "none"] : ["descending", "ascending", "none"];
    const order = orders[(orders.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
    heads.forEach(other => other.setAttribute("aria-sort", other === head ? order : "none"));
    const key = row => row.cells[place].dataset.value ?? row.cells[place].textContent;
    const rows = [...first];
    if (order !== "none") rows.sort((a, b) => {
      const [x, y] = [key(a), key(b)], sign = order === "ascending" ? 1 : -1;
      if (x === "" || y === "") return (x === "") - (y === "");
      return sign * (words ? x.localeCompare(y) : x - y);
    });
    body.append(...rows);
  }));
}));
