"use strict";
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const SIZE = 480, PAD = 22;
  const byId = (id) => document.getElementById(id);
  // Strings are only set as text, never as HTML.
  const make = (name, attributes = {}, content = null) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (content !== null) node.textContent = content;
    return node;
  };
  const draw = (name, attributes) => {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };

  const copy = byId("copy");
  if (copy) {
    copy.addEventListener("click", async () => {
      const source = byId("source");
      try {
        await navigator.clipboard.writeText(source.textContent);
      } catch {
        const range = document.createRange();
        range.selectNodeContents(source);
        const selection = window.getSelection();
        selection.removeAllRanges();
        selection.addRange(range);
        document.execCommand("copy");
      }
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
  }

  const minus = (value) => String(value ?? "").replace(/^-(?=[0-9])/, "\u2212");

  // Tables: a heading sorts the rows.
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    if (!cell) return null;
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    const text = cell.textContent.trim();
    const number = parseFloat(text.replace("\u2212", "-"));
    return /^[\u2212+\-]?[0-9]/.test(text) && Number.isFinite(number) ? number : text || null;
  };
  const compared = (a, b) => (typeof a === typeof b ? (typeof a === "number" ? a - b : a.localeCompare(b)) : typeof a === "number" ? -1 : 1);
  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", class: "sort" }, head.textContent);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const rows = [...body.rows].map((row) => [valueOf(row, column), row]);
        // Numbers begin with the largest, text with the first in alphabetical order; a second click reverses the order.
        const texts = rows.some(([value]) => typeof value === "string");
        const before = head.getAttribute("aria-sort");
        const down = before === null ? !texts : before !== "descending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        // Rows without a value come last in both orders.
        rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : down ? compared(b, a) : compared(a, b)));
        body.append(...rows.map(([, row]) => row));
      });
    });
  });

  const tip = byId("tip");
  function moveTip(event) {
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 16 + box.width > window.innerWidth ? event.clientX - 16 - box.width : event.clientX + 16;
    const y = Math.min(event.clientY + 14, window.innerHeight - box.height - 8);
    tip.style.left = `${Math.max(4, x)}px`;
    tip.style.top = `${Math.max(4, y)}px`;
  }
  // Curves: the point that is nearest to the pointer shows its value.
  document.querySelectorAll("svg.chart").forEach((chart) => {
    const knots = [...chart.querySelectorAll("[data-tip]")];
    let lit = null;
    const light = (knot, event) => {
      if (lit) lit.classList.remove("lit");
      lit = knot;
      tip.hidden = !knot;
      if (!knot) return;
      knot.classList.add("lit");
      tip.replaceChildren(make("span", {}, knot.dataset.tip));
      moveTip(event);
    };
    chart.addEventListener("pointermove", (event) => {
      let best = null, least = 24 * 24;
      for (const knot of knots) {
        const box = knot.getBoundingClientRect();
        const gap = (box.left + box.width / 2 - event.clientX) ** 2 + (box.top + box.height / 2 - event.clientY) ** 2;
        if (gap < least) { least = gap; best = knot; }
      }
      light(best, event);
    });
    chart.addEventListener("pointerleave", () => light(null));
  });

  const data = JSON.parse(byId("views").textContent);
  if (!data) return;
  const sides = ["before", "after"];
  const shown = { before: data.planes[data.before], after: data.planes[data.after] };
  const count = data.rows.length;
  const codes = data.codes;
  // More classes than named colours: hues around the circle, every other one lighter.
  const colours = codes && data.classes.map((_, i) => data.classes.length <= 10
    ? `var(--c${i})`
    : `hsl(${Math.round((360 * i) / data.classes.length)} 65% ${i % 2 ? 62 : 45}%)`);
  // A numeric target is a shade between two colours, by rank, so that a few large values do not hide the rest.
  const targets = data.targets;
  const shades = targets && (() => {
    const order = targets.map((_, i) => i).sort((a, b) => targets[a] - targets[b]);
    const shade = new Array(count);
    order.forEach((i, place) => {
      const same = place > 0 && targets[i] === targets[order[place - 1]];
      shade[i] = same ? shade[order[place - 1]] : Math.round((100 * place) / Math.max(count - 1, 1));
    });
    return shade.map((share) => `color-mix(in oklab, var(--high) ${share}%, var(--low))`);
  })();
  const colour = (i) => (codes ? colours[codes[i]] : shades ? shades[i] : "var(--c0)");
  const said = (i) => (codes ? data.classes[codes[i]] : targets ? minus(targets[i]) : "");
  const planes = {};
  let selected = null, focusClass = null;

  function drawPlane(side) {
    const svg = byId(`plane-${side}`);
    svg.setAttribute("viewBox", `0 0 ${SIZE} ${SIZE}`);
    const points = shown[side].points;
    const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
    const low = [Math.min(...xs), Math.min(...ys)], high = [Math.max(...xs), Math.max(...ys)];
    // One scale for both axes: distances in the picture are distances.
    const span = Math.max(high[0] - low[0], high[1] - low[1]) || 1;
    const scale = (SIZE - 2 * PAD) / span;
    const place = points.map((p) => [
      SIZE / 2 + (p[0] - (low[0] + high[0]) / 2) * scale,
      SIZE / 2 - (p[1] - (low[1] + high[1]) / 2) * scale,
    ]);
    const links = draw("g", { class: "links" });
    const dots = draw("g", { class: "dots" });
    svg.replaceChildren(links, dots);
    const radius = count > 600 ? 3 : count > 250 ? 3.8 : 4.6;
    const nodes = place.map(([x, y], i) => {
      const node = draw("circle", {
        cx: x.toFixed(1), cy: y.toFixed(1), r: radius, class: "point", "data-i": i,
        style: `stroke:${colour(i)};fill:${!data.held_out || data.held_out[i] ? colour(i) : "var(--paper)"}`,
      });
      dots.append(node);
      return node;
    });
    planes[side] = { svg, links, dots, nodes, place, radius };
  }

  for (const side of sides) {
    drawPlane(side);
    const svg = byId(`plane-${side}`), choice = byId(`method-${side}`);
    choice.value = String(data[side]);
    choice.addEventListener("change", () => {
      shown[side] = data.planes[Number(choice.value)];
      byId(`explained-${side}`).textContent = `${Math.round(100 * shown[side].explained)} % of the variance in this plane`;
      svg.setAttribute("aria-label", `${shown[side].label}: ${count} rows; arrow keys move from row to row, Escape clears`);
      drawPlane(side);
      select(selected);
    });
    svg.addEventListener("pointermove", (event) => hover(nearest(side, event), event));
    svg.addEventListener("pointerleave", () => hover(null));
    svg.addEventListener("click", (event) => { const i = nearest(side, event); if (i !== null) select(i); });
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) { event.preventDefault(); select(selected === null ? 0 : (selected + step + count) % count); }
      if (event.key === "Escape") select(null);
    });
  }

  function nearest(side, event) {
    const box = planes[side].svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * SIZE, y = ((event.clientY - box.top) / box.height) * SIZE;
    let best = null, least = 14 * 14;
    planes[side].place.forEach(([px, py], i) => {
      const gap = (px - x) ** 2 + (py - y) ** 2;
      if (gap < least && (focusClass === null || codes[i] === focusClass)) { least = gap; best = i; }
    });
    return best;
  }

  let hot = null;
  function hover(i, event) {
    if (hot !== i) {
      for (const side of sides) {
        if (hot !== null && hot !== selected) planes[side].nodes[hot].classList.remove("hot");
        if (i !== null) planes[side].nodes[i].classList.add("hot");
      }
      hot = i;
      if (i !== null) tip.replaceChildren(...describe(i));
    }
    tip.hidden = i === null;
    if (i !== null && event) moveTip(event);
  }

  const named = (i) => `row ${data.rows[i]}`;
  function describe(i) {
    const parts = [make("b", {}, named(i) + (codes ? `, ${said(i)}` : targets ? `, target ${said(i)}` : ""))];
    if (data.held_out) parts.push(make("span", {}, data.held_out[i] ? "held out" : "used for learning"));
    const list = make("dl");
    data.columns.slice(0, 12).forEach((name, j) => {
      list.append(make("dt", {}, name), make("dd", {}, minus(data.values[i][j])));
    });
    parts.push(list);
    if (data.columns.length > 12) parts.push(make("span", {}, `and ${data.columns.length - 12} more columns`));
    return parts;
  }

  function select(i) {
    selected = i;
    byId("pick").value = i === null ? "" : data.rows[i];
    for (const side of sides) {
      const { svg, links, dots, nodes, place, radius } = planes[side];
      links.replaceChildren();
      nodes.forEach((node) => { node.classList.remove("on", "hot"); node.setAttribute("r", radius); });
      if (i === null) continue;
      const near = shown[side].neighbors[i];
      for (const j of near) {
        nodes[j].classList.add("on");
        links.append(draw("line", { class: "link", x1: place[i][0], y1: place[i][1], x2: place[j][0], y2: place[j][1] }));
      }
      nodes[i].classList.add("on", "hot");
      nodes[i].setAttribute("r", radius + 3);
      dots.append(nodes[i]);
    }
    mark();
    details(i);
  }

  function mark() {
    for (const side of sides) {
      const { svg, nodes } = planes[side];
      svg.classList.toggle("dim", selected !== null || focusClass !== null);
      if (selected === null) nodes.forEach((node, i) => node.classList.toggle("on", focusClass !== null && codes[i] === focusClass));
    }
  }

  function details(i) {
    const box = byId("details");
    if (i === null) { box.replaceChildren(make("p", { class: "muted" }, "No row is selected.")); return; }
    const head = make("p");
    const unusual = data.unusual[i];
    head.append(make("strong", {}, named(i)), make("span", {}, codes ? `, class ${said(i)}` : targets ? `, target ${said(i)}` : ""));
    if (unusual !== undefined) {
      const back = make("a", { href: `#unusual-${unusual}` }, "one of the unusual rows");
      back.addEventListener("click", () => flash(byId(`unusual-${unusual}`)));
      head.append(make("span", {}, ", "), back);
    }
    const table = make("table");
    for (const side of sides) {
      const near = shown[side].neighbors[i];
      const row = make("tr");
      const right = codes ? near.filter((j) => codes[j] === codes[i]).length : null;
      const title = make("th", { scope: "row" }, `${side === "before" ? "Before" : "After"}, ${shown[side].label}`);
      const cell = make("td");
      if (codes) cell.append(make("div", {}, `${right} of ${near.length} neighbours are of its class`));
      if (targets) {
        const mean = near.reduce((sum, j) => sum + targets[j], 0) / near.length;
        cell.append(make("div", {}, `its neighbours' mean is ${minus(Number(mean.toPrecision(4)))}`));
      }
      for (const j of near) {
        const css = codes ? (codes[j] === codes[i] ? "chip right" : "chip wrong") : "chip";
        cell.append(make("span", { class: css }, data.rows[j] + (codes || targets ? ` ${said(j)}` : "")));
      }
      row.append(title, cell);
      table.append(row);
    }
    const values = make("p", { class: "muted" },
      data.columns.slice(0, 20).map((name, j) => `${name} ${minus(data.values[i][j])}`).join(", "));
    box.replaceChildren(head, table, values);
  }

  function flash(row) {
    document.querySelectorAll("tr.found").forEach((other) => other.classList.remove("found"));
    row.classList.add("found");
  }
  for (const [i, place] of Object.entries(data.unusual)) {
    const name = byId(`unusual-${place}`).querySelector(".row-name");
    const button = make("button", { type: "button", class: "to-plane", title: "Show it in the plane" }, name.textContent);
    button.addEventListener("click", () => {
      select(Number(i));
      byId("plane").scrollIntoView();
      byId("plane-after").focus({ preventScroll: true });
    });
    name.replaceChildren(button);
  }

  const legend = byId("legend");
  if (codes) {
    data.classes.slice(0, 30).forEach((name, code) => {
      const button = make("button", { type: "button", "aria-pressed": "false" });
      button.append(make("i", { style: `background:${colours[code]}` }), make("span", {}, name));
      button.addEventListener("click", () => {
        focusClass = focusClass === code ? null : code;
        legend.querySelectorAll("button").forEach((other) => other.setAttribute("aria-pressed", "false"));
        button.setAttribute("aria-pressed", String(focusClass === code));
        select(null);
      });
      legend.append(button);
    });
  }
  if (targets) {
    const bar = make("div", { class: "ramp" });
    bar.append(make("span", {}, `target ${minus(Math.min(...targets))}`), make("i"), make("span", {}, minus(Math.max(...targets))));
    legend.append(bar);
  }
  byId("clear").addEventListener("click", () => select(null));
  byId("pick").addEventListener("change", (event) => {
    const wanted = event.target.value.trim();
    const i = data.rows.indexOf(wanted);
    select(i < 0 ? null : i);
    if (i < 0 && wanted) byId("details").replaceChildren(make("p", { class: "muted" }, `Row ${wanted} is not drawn.`));
  });
})();
