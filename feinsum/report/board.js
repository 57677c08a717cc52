// Draws the run of the page: parallel coordinates and a table, and a second run beside it.
// Texts are only ever set as text, so nothing that a record says is taken for html.
"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const board = document.getElementById("board");
  const runs = [read("feinsum-run"), read("feinsum-other")];
  const state = { space: null, chosen: new Map(), pinned: null };

  function make(tag, properties, ...children) {
    const made = document.createElement(tag);
    Object.assign(made, properties);
    made.append(...children);
    return made;
  }
  function draw(tag, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }
  function duration(s) {
    const [unit, scale] = s < 1e-6 ? ["ns", 1e-9] : s < 1e-3 ? ["µs", 1e-6] : s < 1 ? ["ms", 1e-3] : ["s", 1];
    return `${(s / scale).toPrecision(4)} ${unit}`;
  }
  const listed = (values) => Object.entries(values).map(([name, value]) => `${name}=${value}`).join(" ");
  const python = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value));
  const kernelOf = (r) => `${r.space} ${listed(r.configuration)}`;
  const worked = (run) => (run ? run.records.filter((r) => r.median_s !== null) : []);

  // Numbers by size, then words.
  function inOrder(values) {
    return [...new Set(values)].sort((a, b) =>
      isNaN(a) !== isNaN(b) ? isNaN(a) - isNaN(b) : isNaN(a) ? a.localeCompare(b) : a - b);
  }
  function visible() {
    const seen = runs.flatMap((run, which) => worked(run).map((r) => ({ r, which })));
    const mine = seen.filter(({ r }) => r.space === state.space);
    return mine.filter(({ r }) => [...state.chosen].every(([name, values]) => values.has(r.configuration[name])));
  }

  const said = make("div", { className: "said" });
  const plot = make("div", {});
  const table = make("div", { className: "scroll" });
  const compared = make("div", {});
  const lines = new Map();

  function tell(r, which) {
    const flops = r.median_s ? `${(r.flops / r.median_s / 1e9).toPrecision(4)} GFLOP/s` : "";
    const bytes = r.median_s ? `${(r.bytes / r.median_s / 1e9).toPrecision(4)} GB/s` : "";
    const best = Math.min(...worked(runs[which]).map((one) => one.median_s));
    const time = r.median_s
      ? `${duration(r.median_s)} ± ${(100 * r.spread_s / r.median_s).toFixed(1)}%   ${flops}   ${bytes}   ` +
        `${(r.median_s / best).toFixed(2)} times the best`
      : `${r.status}: ${r.message}`;
    const given = Object.entries(r.given).map(([name, value]) => `${JSON.stringify(name)}: ${python(value)}`).join(", ");
    said.textContent = [
      `${which ? "the other run: " : ""}${time}`,
      kernelOf(r),
      `record ${r.id} of ${r.created}`,
      `configuration={${given}}, space=${JSON.stringify(r.space.split("@")[0])}`,
    ].join("\n");
  }
  function light(key) {
    for (const [other, elements] of lines)
      for (const one of elements) one.classList.toggle("lit", other === key);
  }
  function watch(element, r, which) {
    const key = `${which} ${r.id}`;
    if (!lines.has(key)) lines.set(key, []);
    lines.get(key).push(element);
    const show = () => { light(key); tell(r, which); };
    element.addEventListener("mouseenter", () => { if (!state.pinned) show(); });
    element.addEventListener("click", () => { state.pinned = state.pinned === key ? null : key; show(); });
  }

  function drawPlot() {
    const all = runs.flatMap((run) => worked(run)).filter((r) => r.space === state.space);
    plot.replaceChildren();
    if (!all.length) return plot.append("nothing was right");
    const names = [...new Set(all.flatMap((r) => Object.keys(r.configuration)))].filter(
      (name) => new Set(all.map((r) => r.configuration[name])).size > 1);
    const same = Object.entries(all[0].configuration).filter(([name]) => !names.includes(name));
    const width = Math.max(900, 110 * (names.length + 1)), height = 380, top = 40, foot = height - 25;
    const x = (k) => 60 + (k * (width - 150)) / Math.max(names.length, 1);
    const times = all.map((r) => r.median_s), low = Math.min(...times), high = Math.max(...times);
    const share = (t) => (high > low ? Math.log(t / low) / Math.log(high / low) : 0);
    const y = (part) => top + part * (foot - top);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    const places = names.map((name) => {
      const values = inOrder(all.map((r) => r.configuration[name] ?? "–"));
      return new Map(values.map((value, k) => [value, y((k + 0.5) / values.length)]));
    });
    const shownNow = new Set(visible().map(({ r }) => r));
    const drawn = runs.flatMap((run, which) => worked(run).map((r) => ({ r, which })));
    drawn.filter(({ r }) => r.space === state.space).sort((a, b) => b.r.median_s - a.r.median_s).forEach(({ r, which }, k) => {
      const shift = ((k % 9) - 4) * 0.9;  // lines through the same choices lie beside each other
      const points = names.map((name, at) => [x(at), places[at].get(r.configuration[name] ?? "–") + shift]);
      points.push([x(names.length), y(share(r.median_s))]);
      const part = share(r.median_s);
      const line = draw("polyline", {
        points: points.map((point) => point.join(",")).join(" "),
        class: `line${which ? " other" : ""}${shownNow.has(r) ? "" : " faint"}`,
        stroke: `hsl(${210 + 90 * part}, ${75 - 45 * part}%, ${48 + 12 * part}%)`,
      });
      watch(line, r, which);
      svg.append(line);
    });
    names.forEach((name, at) => {
      svg.append(draw("line", { x1: x(at), x2: x(at), y1: top, y2: foot, class: "axis" }));
      svg.append(draw("text", { x: x(at), y: top - 16, "text-anchor": "middle", "font-weight": "bold" }, name));
      for (const [value, place] of places[at]) {
        const chosen = state.chosen.get(name)?.has(value);
        const label = draw("text", { x: x(at) + 5, y: place + 4, class: `choice${chosen ? " chosen" : ""}` }, value);
        label.addEventListener("click", () => {
          const values = state.chosen.get(name) ?? new Set();
          values.has(value) ? values.delete(value) : values.add(value);
          values.size ? state.chosen.set(name, values) : state.chosen.delete(name);
          drawAll();
        });
        svg.append(label);
      }
    });
    const last = x(names.length);
    svg.append(draw("line", { x1: last, x2: last, y1: top, y2: foot, class: "axis" }));
    svg.append(draw("text", { x: last, y: top - 16, "text-anchor": "middle", "font-weight": "bold" }, "time"));
    for (const part of high > low ? [0, 0.25, 0.5, 0.75, 1] : [0])
      svg.append(draw("text", { x: last + 6, y: y(part) + 4 }, duration(low * (high / low) ** part)));
    plot.append(svg);
    if (same.length) plot.append(make("p", {}, `the same everywhere: ${listed(Object.fromEntries(same))}`));
  }

  function rows(headings, text, body) {
    const kind = (k) => (text.includes(k) ? "text" : "");
    const head = make("tr", {}, ...headings.map((name, k) => make("th", { className: kind(k) }, name)));
    const lines = body.map(({ cells, r, which }) => {
      const row = make("tr", {}, ...cells.map((cell, k) => make("td", { className: kind(k) }, cell)));
      if (r) watch(row, r, which);
      return row;
    });
    return make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines));
  }
  function drawTable() {
    const found = visible().sort((a, b) => a.r.median_s - b.r.median_s);
    const body = found.map(({ r, which }) => ({
      r, which, cells: [which ? "other" : "this", duration(r.median_s), `${(100 * r.spread_s / r.median_s).toFixed(1)}%`,
        (r.flops / r.median_s / 1e9).toPrecision(4), kernelOf(r)],
    }));
    const failed = runs[0].records.filter((r) => r.median_s === null).map((r) => ({
      r, which: 0, cells: ["this", r.status, "", "", `${kernelOf(r)}: ${r.message.slice(0, 120)}`] }));
    table.replaceChildren(rows(["run", "time", "±", "GFLOP/s", "configuration"], [0, 4], [...body, ...failed]));
  }
  function drawComparison() {
    compared.replaceChildren(make("h3", {}, "beside another run"));
    const choose = make("input", { type: "file", accept: ".html" });
    choose.addEventListener("change", async () => {
      const page = new DOMParser().parseFromString(await choose.files[0].text(), "text/html");
      const found = page.getElementById("feinsum-run");
      if (!found) return compared.append(make("p", {}, "that is no page of a tuning run"));
      runs[1] = JSON.parse(found.textContent);
      drawAll();
    });
    compared.append(make("label", {}, "another page of this kind: ", choose));
    if (!runs[1]) return;
    const best = runs.map((run) => run.records.find((r) => r.id === run.best) ?? worked(run).sort((a, b) => a.median_s - b.median_s)[0]);
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.facts)))];
    const differ = names.filter((name) => runs[0].facts[name] !== runs[1].facts[name]);
    const facts = differ.map((name) => ({ cells: [name, runs[0].facts[name] ?? "", runs[1].facts[name] ?? ""] }));
    const bests = { cells: ["best", ...best.map((r) => (r ? `${duration(r.median_s)} ${kernelOf(r)}` : "nothing right"))] };
    compared.append(rows(["what differs", "this run", "the other"], [0, 1, 2], [bests, ...facts]));
    const theirs = new Map(worked(runs[1]).map((r) => [kernelOf(r), r]));
    const both = worked(runs[0]).filter((r) => theirs.has(kernelOf(r)));
    const ratios = both.map((r) => r.median_s / theirs.get(kernelOf(r)).median_s).sort((a, b) => a - b);
    const ratio = ratios.length ? ratios[ratios.length >> 1].toFixed(3) : "";
    compared.append(make("p", {}, both.length
      ? `${both.length} in both; this run took ${ratio} times the time of the other in the median`
      : "no configuration is in both"));
    const body = both.sort((a, b) => a.median_s - b.median_s).map((r) => ({
      r, which: 0, cells: [duration(r.median_s), duration(theirs.get(kernelOf(r)).median_s),
        (r.median_s / theirs.get(kernelOf(r)).median_s).toFixed(3), kernelOf(r)] }));
    if (both.length) compared.append(make("div", { className: "scroll" },
      rows(["this run", "the other", "ratio", "configuration"], [3], body)));
  }
  function drawAll() {
    lines.clear();
    drawPlot();
    drawTable();
    drawComparison();
  }

  const spaces = [...new Set(runs.flatMap((run) => (run ? run.records.map((r) => r.space) : [])))];
  const quickest = worked(runs[0]).sort((a, b) => a.median_s - b.median_s)[0];
  state.space = quickest ? quickest.space : spaces[0];
  const select = make("select", {}, ...spaces.map((name) => make("option", { value: name, selected: name === state.space }, name)));
  select.addEventListener("change", () => { state.space = select.value; state.chosen.clear(); drawAll(); });
  said.textContent = "Point at a line, or at a row of the table; a click holds it.  A click on a value keeps the lines through it.";
  board.append(make("p", { className: "controls" }, make("label", {}, "space ", select)), plot, said, table, compared);
  drawAll();
})();
