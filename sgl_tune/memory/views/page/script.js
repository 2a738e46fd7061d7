const GIB = 2 ** 30, MIB = 2 ** 20, NUMBER = "number";
const size = n => n == null ? "–" : n === 0 ? "0" : Math.abs(n) >= GIB ? (even(n / GIB * 100) / 100).toFixed(2) + " GiB" : Math.abs(n) >= MIB ? even(n / MIB) + " MiB" : Math.ceil(n / 1024) + " KiB";
/** Half a unit goes to the even one, as in the terminal. */
const even = n => Math.abs(n % 1) === .5 ? 2 * Math.round(n / 2) : Math.round(n);

/** No line breaks within a flag. */
const words = text => text.split(" ").flatMap(word => [element("span", { className: "word" }, word), " "]);

const folded = (title, content) => element("details", {}, element("summary", {}, title), ...content);

function showVerdict() {
  const box = at("verdict"), code = text => element("code", {}, ...words(text));
  box.className = { red: "bad", yellow: "warn", green: "" }[report.verdict_style];
  box.append(element("strong", {}, report.verdict_text), ...report.said.map(text => element("p", {}, text)));
  if (report.helps.length) box.append(element("p", {}, element("strong", { className: "small" }, "What would help, the cheapest first; each was simulated")));
  for (const [text, command] of report.helps) box.append(element("p", {}, text), element("pre", {}, code(command)));
  box.append(...report.warnings.map(text => element("p", {}, text)));
  if (report.calls.length) box.append(folded("SGLang's calls, the innermost first", report.calls.map(text => element("p", {}, text))));
}

// ---- the chart: a column per phase, stacked by what holds the GPU at the phase's peak

const LEFT = 62, TOP = 18, NARROW = 640;
const PARTS = ["other processes", "outside torch", "NCCL", "graphs outside torch", "other weights", "experts", "attention", "mlp", "embeddings",
  "KV cache", "buffers", "graphs", "other of torch", "temporary", "cached by torch"];
const colour = what => `var(--part-${PARTS.indexOf(what) >= 0 ? PARTS.indexOf(what) : PARTS.indexOf("other of torch")})`;
const others = Object.entries(report.what_if).filter(([, of]) => of.phases.length);
/** Without a phase whose peak is that of a phase within it. */
const peaking = of => of.phases.filter((phase, i) => {
  const next = of.phases.findIndex((other, j) => j > i && other.depth <= phase.depth), within = of.phases.slice(i + 1, next < 0 ? undefined : next);
  return !within.some(other => other.reserved_peak_bytes >= phase.reserved_peak_bytes);
});
const names = [...new Set([report, ...others.map(([, of]) => of)].flatMap(of => peaking(of).map(phase => phase.name)))];
const used = phase => phase.held.reduce((sum, of) => sum + (of.what === "free" ? 0 : of.bytes), 0);
const wanted = of => of.oom && !of.oom.by_driver ? of.total_bytes - of.oom.free_bytes + of.oom.tried_bytes : 0;
const ceiling = 1.06 * Math.max(report.total_bytes, ...[report, ...others.map(([, of]) => of)].map(wanted));
const hidden = {};
let WIDTH = 1060, HEIGHT = 420, BOTTOM = 92, step = 0, floor = 0;  // `floor`: what the axis begins with
const x = i => LEFT + i * step;
const y = bytes => TOP + Math.min(1, 1 - (bytes - floor) / (ceiling - floor)) * (HEIGHT - TOP - BOTTOM);

/** A pixel is a pixel: letters stay as large where the page is narrow. */
function drawChart() {
  WIDTH = Math.max(280, at("chart").clientWidth);
  [HEIGHT, BOTTOM] = WIDTH < NARROW ? [400, 124] : [420, 92];
  step = (WIDTH - LEFT - 8) / Math.max(1, names.length);
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "What holds the GPU at the peak of each phase" });
  drawGrid(svg);
  for (const phase of peaking(report)) drawStack(svg, phase, names.indexOf(phase.name));
  others.forEach(([, of], i) => hidden[i] || drawOther(svg, of, `var(--other-${i % 6})`));
  drawFailure(svg, report, "var(--limit)");
  names.forEach((name, i) => drawColumn(svg, name, i));
  at("chart").replaceChildren(svg);
}

function drawStack(svg, phase, i) {
  let below = 0;
  for (const { what, bytes } of phase.held) {
    if (what === "free") continue;
    const top = y(below + bytes), bottom = y(Math.max(floor, below));
    below += bytes;
    if (bottom > top) svg.append(shape("rect", { x: x(i) + step * .12, y: top, width: step * .76, height: bottom - top, fill: colour(what) }));
  }
}

function drawGrid(svg) {
  const unit = [.5, 1, 2, 5, 10, 20, 25, 50, 100].find(gib => (ceiling - floor) / GIB / gib <= 9) || 500;
  for (let gib = Math.ceil(floor / GIB / unit) * unit; gib * GIB <= ceiling; gib += unit) {
    svg.append(shape("line", { class: "grid", x1: LEFT, x2: WIDTH - 8, y1: y(gib * GIB), y2: y(gib * GIB) }));
    svg.append(shape("text", { x: LEFT - 8, y: y(gib * GIB) + 4, "text-anchor": "end" }, `${gib} GiB`));
  }
  svg.append(shape("line", { class: "limit", x1: LEFT, x2: WIDTH - 8, y1: y(report.total_bytes), y2: y(report.total_bytes) }));
  svg.append(shape("text", { x: LEFT + 6, y: y(report.total_bytes) - 5, style: "fill: var(--limit)" }, `${report.gpu}: ${size(report.total_bytes)}`));
}

/** What was tried, on top of all that was in use. */
function drawFailure(svg, of, stroke) {
  if (!wanted(of)) return;
  const middle = x(names.indexOf(of.oom.phase)) + step / 2, top = y(wanted(of));
  svg.append(shape("line", { x1: middle, x2: middle, y1: y(wanted(of) - of.oom.tried_bytes), y2: top, stroke, "stroke-width": 2, "stroke-dasharray": "3 3" }));
  svg.append(shape("path", { d: `M${middle - 6},${top - 6}l12,12m0,-12l-12,12`, stroke, "stroke-width": 3 }));
}

function drawOther(svg, of, stroke) {
  for (const phase of peaking(of)) {
    const from = x(names.indexOf(phase.name)), line = { x1: from + step * .04, x2: from + step * .96, y1: y(used(phase)), y2: y(used(phase)) };
    svg.append(shape("line", { ...line, stroke: "var(--card)", "stroke-width": 5 }), shape("line", { ...line, stroke, "stroke-width": 3 }));
  }
  drawFailure(svg, of, stroke);
}

function drawColumn(svg, name, i) {
  const middle = x(i) + step / 2, base = HEIGHT - BOTTOM + 16;
  const label = shape("text", { x: middle, y: base, "text-anchor": "end", transform: `rotate(${WIDTH < NARROW ? -62 : -28} ${middle} ${base})` }, name);
  const column = shape("rect", { class: "column", x: x(i), y: TOP, width: step, height: HEIGHT - TOP - BOTTOM, tabindex: 0, role: "button", "aria-label": `${name}: details` });
  svg.append(label, tells(column, () => columnFacts(name)));
}

function columnFacts(name) {
  const named = of => of.phases.find(phase => phase.name === name), phase = named(report);
  const beside = others.map(([title, of]) => [title, named(of)]).filter(([, other]) => other);
  return [element("h3", {}, name), ...(phase ? phaseFacts(phase) : []), ...beside.map(([title, other]) =>
    element("div", {}, `${title}: ${size(used(other))} in use, ${other.failed ? "out of memory" : size(other.free_at_peak_bytes) + " free"}`))];
}

function phaseFacts(phase) {
  const rows = phase.held.map(({ what, bytes }) => ({ cells: [element("span", {}, what === "free" ? "" : key(colour(what)), what), size(bytes)] }));
  const largest = phase.largest.slice(0, 4).map(held => ({ cells: [element("span", { className: "mono" }, held.what || held.where), size(held.bytes)] }));
  return [table([["at the peak"], ["", NUMBER]], rows), ...(largest.length ? [table([["the largest allocations"], ["", NUMBER]], largest)] : [])];
}

const key = (fill, isLine) => element("i", isLine ? { className: "line", style: `border-color: ${fill}` } : { style: `background: ${fill}` });

function drawLegend() {
  const held = new Set(report.phases.flatMap(phase => phase.held.map(of => of.what)));
  for (const what of [...PARTS].reverse()) if (held.has(what)) at("legend").append(element("span", {}, key(colour(what)), what));
  others.forEach(([name], i) => choice(key(`var(--other-${i % 6})`, true), name, true, isShown => { hidden[i] = !isShown; }));
  choice("", "only the top fifth", false, isShown => { floor = isShown ? .8 * report.total_bytes : 0; });
}

function choice(mark, text, checked, change) {
  const box = element("input", { type: "checkbox", checked });
  box.addEventListener("change", () => { change(box.checked); drawChart(); });
  at("legend").append(element("label", {}, box, mark, text));
}

// ---- the tables, as the terminal has them

function shown(of) {
  const rows = of.rows.map((cells, i) => ({ mark: of.marks[i] || "", cells }));
  return table(of.columns.map(([title, right]) => [title, right ? NUMBER : ""]), rows);
}

headed(report.heading, []);
at("flags").append(...words(report.flags));
showVerdict();
drawLegend();
whenWide(drawChart);
for (const of of report.tables) section(of.title, shown(of), ...(of.below ? [element("p", { className: "hint" }, of.below)] : []));
showSweep(report.sweep);
if (report.sizes_text) section("Sizes that followed", element("p", {}, report.sizes_text.replace("Sizes: ", "")));
const sources = [...report.sources.map(text => element("p", {}, text)), ...report.provenance.flatMap(of => [element("p", {}, of.title), shown(of)])];
if (sources.length) section("", folded("Where these numbers come from", sources));
