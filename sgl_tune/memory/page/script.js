const GIB = 2 ** 30, MIB = 2 ** 20;
const size = n => n == null ? "–" : n === 0 ? "0" : Math.abs(n) >= GIB ? (even(n / GIB * 100) / 100).toFixed(2) + " GiB" : Math.abs(n) >= MIB ? even(n / MIB) + " MiB" : Math.ceil(n / 1024) + " KiB";
/** Half a unit goes to the even one, as in the terminal. */
const even = n => Math.abs(n % 1) === .5 ? 2 * Math.round(n / 2) : Math.round(n);
const count = n => n == null ? "–" : n.toLocaleString("en-US");
// ---- the verdict

function verdictText(of) {
  if (of.refused) return `Refused by SGLang: ${of.refused}`;
  return memoryText(of);
}

function memoryText(of) {
  if (of.oom) return outOfMemory(of, of.oom);
  if (of.failed_in) return `${of.failure ? "Failed" : "Not finished"} in ${of.failed_in}`;
  return `Fits: ${size(of.free_at_peak_bytes)} free at the peak, ±${size(of.margin_bytes)}`;
}

/** With how far off the free bytes may be; a measured start has no error bar. */
function outOfMemory(of, oom) {
  const tried = oom.by_driver ? "the driver refused" : `tried ${size(oom.tried_bytes)}`;
  const doubt = of.margin_bytes ? ` (±${size(of.margin_bytes)})` : "", barely = of.is_inside_error_bar ? ", inside the error bar," : "";
  return `Out of memory${barely} in ${oom.phase}: ${tried}, ${size(oom.free_bytes)} free${doubt}, ${size(oom.allocated_bytes)} allocated`;
}

/** Whether what torch counts is that of a real start; of the core, that no server was asked. */
function exactness(of) {
  if (of.source === "core") return "by the runtime core, no server was asked";
  if (of.source === "measured" || of.refused) return "";
  return of.exact ? "exact (what torch counts up to ready, with random weights; not traffic, not a real checkpoint)" : `not exact: ${of.inexact.join("; ")}`;
}

/** Of an error, what is about this failure: neither its class nor torch's advice. */
function words(error) {
  return error.slice(error.indexOf(": ") + 2).split(" If reserved but")[0];
}

function showVerdict() {
  const box = at("verdict");
  const doubtful = report.is_inside_error_bar || report.verdict === "partial";
  box.className = doubtful ? "warn" : report.verdict !== "fits" ? "bad" : "";
  box.append(element("strong", {}, verdictText(report)));
  if (exactness(report)) box.append(element("p", {}, exactness(report)));
  if (report.failure) box.append(element("p", {}, element("code", {}, words(report.failure))));
  for (const frame of [...report.stack].reverse()) box.append(element("p", {}, "at ", element("code", {}, frame)));
  if (!report.stack.length && report.oom && report.oom.where) box.append(element("p", {}, "at ", element("code", {}, report.oom.where)));
  for (const remedy of report.remedies) {
    box.append(element("p", {}, element("code", {}, remedy.flags), `: fits, ${size(remedy.free_at_peak_bytes)} free at the peak, ${remedy.cost}`));
  }
}

// ---- the timeline: each top-level phase is a column, its peak stands in the middle

const LEFT = 62, TOP = 16, NARROW = 640;
let WIDTH = 1060, HEIGHT = 400, BOTTOM = 92, step = 0;
const stages = of => of.phases.filter(phase => phase.depth === 0);
const names = [];
for (const of of [report, ...Object.values(report.what_if)])
  for (const phase of stages(of)) if (!names.includes(phase.name)) names.push(phase.name);
const wanted = of => of.oom ? of.oom.allocated_bytes + of.oom.tried_bytes + lastOf(of).non_torch_bytes : 0;
const lastOf = of => stages(of).at(-1) || { non_torch_bytes: 0 };
const ceiling = 1.08 * Math.max(report.total_bytes, ...[report, ...Object.values(report.what_if)].map(wanted));
const hidden = {};
let floor = 0;  // what the axis begins with: a server fills its GPU, and what matters happens at the top
const x = i => LEFT + i * step;
const y = bytes => TOP + Math.min(1, 1 - (bytes - floor) / (ceiling - floor)) * (HEIGHT - TOP - BOTTOM);

/** [x, bytes] along the start: from where a phase begins over its peak to what it leaves. */
function profile(of, end, peak) {
  const points = [];
  let before = 0;
  for (const phase of stages(of)) {
    const left = x(names.indexOf(phase.name)), after = end(phase), top = Math.max(before, after, peak(phase));
    points.push([left, before], [left + step * .3, top], [left + step * .7, top], [left + step, after]);
    before = after;
  }
  return points;
}

const path = points => "M" + points.map(([px, bytes]) => `${px.toFixed(1)},${y(bytes).toFixed(1)}`).join("L");
const area = (upper, lower) => path(upper) + "L" + path([...lower].reverse()).slice(1) + "Z";
const outside = of => profile(of, p => p.non_torch_bytes, () => 0);
const allocated = of => profile(of, p => p.non_torch_bytes + p.allocated_bytes, p => p.non_torch_bytes + p.peak_bytes);
const held = of => profile(of, p => p.non_torch_bytes + p.allocated_bytes, () => 0);
const reserved = of => profile(of, p => p.non_torch_bytes + p.reserved_bytes, p => p.non_torch_bytes + p.reserved_peak_bytes);

/** A pixel is a pixel: letters stay as large where the page is narrow. */
function layOut() {
  WIDTH = Math.max(280, at("chart").clientWidth);
  [HEIGHT, BOTTOM] = WIDTH < NARROW ? [380, 124] : [400, 92];
  step = (WIDTH - LEFT - 8) / Math.max(1, names.length);
}

function drawChart() {
  layOut();
  at("chart").replaceChildren();
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "Memory of each phase against the GPU's capacity" });
  drawGrid(svg);
  const ground = outside(report).map(([px]) => [px, floor]);
  if (ground.length) {
    svg.append(shape("path", { d: area(allocated(report), held(report)), fill: "var(--peak)" }));
    svg.append(shape("path", { d: area(held(report), outside(report)), fill: "var(--allocated)" }));
    svg.append(shape("path", { d: area(outside(report), ground), fill: "var(--outside)" }));
    svg.append(shape("path", { d: path(reserved(report)), fill: "none", stroke: "var(--reserved)", "stroke-width": 2 }));
  }
  drawFailure(svg, report, "var(--limit)");
  Object.values(report.what_if).forEach((of, i) => svg.append(drawOther(of, i)));
  names.forEach((name, i) => drawColumn(svg, name, i));
  at("chart").append(svg);
}

function drawGrid(svg) {
  const unit = [1, 2, 5, 10, 20, 25, 50, 100].find(gib => (ceiling - floor) / GIB / gib <= 9) || 500;
  for (let gib = Math.ceil(floor / GIB / unit) * unit; gib * GIB <= ceiling; gib += unit) {
    svg.append(shape("line", { class: "grid", x1: LEFT, x2: WIDTH - 8, y1: y(gib * GIB), y2: y(gib * GIB) }));
    svg.append(shape("text", { x: LEFT - 8, y: y(gib * GIB) + 4, "text-anchor": "end" }, `${gib} GiB`));
  }
  svg.append(shape("line", { class: "limit", x1: LEFT, x2: WIDTH - 8, y1: y(report.total_bytes), y2: y(report.total_bytes) }));
  svg.append(shape("text", { x: LEFT + 6, y: y(report.total_bytes) - 5, style: "fill: var(--limit)" }, `${report.gpu}: ${size(report.total_bytes)}`));
}

function drawFailure(parent, of, colour) {
  if (!of.oom) return;
  const column = names.indexOf(lastOf(of).name), middle = x(column) + step / 2, top = y(wanted(of));
  parent.append(shape("line", { x1: middle, x2: middle, y1: y(wanted(of) - of.oom.tried_bytes), y2: top, stroke: colour, "stroke-width": 2, "stroke-dasharray": "3 3" }));
  parent.append(shape("path", { d: `M${middle - 6},${top - 6}l12,12m0,-12l-12,12`, stroke: colour, "stroke-width": 3 }));
}

function drawOther(of, i) {
  const colour = `var(--other-${i % 6})`;
  const group = shape("g", { display: hidden[i] ? "none" : "inline" });
  group.append(shape("path", { d: path(allocated(of)), fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": "7 3" }));
  drawFailure(group, of, colour);
  return group;
}

function drawColumn(svg, name, i) {
  const label = shape("text", { x: x(i) + step / 2, y: HEIGHT - BOTTOM + 16, transform: `rotate(${WIDTH < NARROW ? 62 : 28} ${x(i) + step / 2} ${HEIGHT - BOTTOM + 16})` }, name);
  const column = shape("rect", { class: "column", x: x(i), y: TOP, width: step, height: HEIGHT - TOP - BOTTOM, tabindex: 0, role: "button", "aria-label": `${name}: details` });
  svg.append(label, tells(column, () => columnFacts(name)));
}

function columnFacts(name) {
  const named = of => stages(of).find(phase => phase.name === name), phase = named(report);
  const others = Object.entries(report.what_if).map(([title, of]) => [title, named(of)]).filter(([, other]) => other);
  return [element("h3", {}, name), ...(phase ? phaseFacts(phase) : []), ...others.map(([title, other]) =>
    element("div", {}, `${title}: peak ${size(other.peak_bytes)}, ${other.failed ? "out of memory" : size(other.free_at_peak_bytes) + " free"}`))];
}

function phaseFacts(phase) {
  const facts = [["leaves", phase.persistent_bytes], ["torch's peak", phase.peak_bytes], ["gone afterwards", phase.transient_bytes],
    ["reserved at most", phase.reserved_peak_bytes], ["outside torch", phase.non_torch_bytes], ["free at the peak", phase.free_at_peak_bytes]];
  const rows = facts.map(([what, bytes]) => ({ cells: [what, size(bytes)] }));
  const largest = phase.largest.slice(0, 6).map(held => ({ cells: [size(held.bytes), element("span", { className: "mono" }, held.what || held.where)] }));
  return [table([[""], ["", "number"]], rows), ...(largest.length ? [element("strong", {}, "largest at the peak"), table([["", "number"], [""]], largest)] : [])];
}

function drawZoom() {
  const box = element("input", { type: "checkbox" });
  box.addEventListener("change", () => { floor = box.checked ? .8 * report.total_bytes : 0; drawChart(); });
  at("legend").append(element("label", {}, box, "only the top fifth"));
}

function drawLegend() {
  const key = (colour, text, line) => element("span", {}, element("i", line ? { className: "line", style: `border-color: ${colour}` } : { style: `background: ${colour}` }), text);
  at("legend").append(key("var(--outside)", "outside torch"), key("var(--allocated)", "allocated afterwards"), key("var(--peak)", "allocated at the peak"), key("var(--reserved)", "reserved", true));
  Object.keys(report.what_if).forEach((name, i) => {
    const box = element("input", { type: "checkbox", checked: true });
    box.addEventListener("change", () => { hidden[i] = !box.checked; drawChart(); });
    at("legend").append(element("label", {}, box, key(`var(--other-${i % 6})`, name, true)));
  });
}

// ---- the tables

const NUMBER = "number";

function showPhases() {
  const tight = Math.min(...report.phases.map(p => p.free_at_peak_bytes));
  const rows = report.phases.map(phase => ({
    mark: phase.failed ? "bad" : phase.free_at_peak_bytes === tight ? "peak" : "",
    cells: ["\u2003".repeat(phase.depth) + phase.name, phase.failed ? "–" : size(phase.persistent_bytes), size(phase.peak_bytes), size(phase.transient_bytes),
      size(phase.cached_bytes), size(phase.non_torch_bytes), size(phase.failed && report.oom ? report.oom.free_bytes : phase.free_at_peak_bytes),
      ...(report.source === "measured" ? [phase.seconds.toFixed(1) + " s"] : [])],
  }));
  section("Phases", table([["Phase"], ["Leaves", NUMBER], ["Peak", NUMBER], ["Transient", NUMBER], ["Cached", NUMBER], ["Outside torch", NUMBER], ["Free at peak", NUMBER],
    ...(report.source === "measured" ? [["Took", NUMBER]] : [])], rows));
}

function showLargest() {
  const tight = report.phases.find(p => p.failed) || report.phases.toSorted((a, b) => a.free_at_peak_bytes - b.free_at_peak_bytes || b.depth - a.depth)[0];
  if (!tight || !tight.largest.length) return;
  section(`Largest allocations at the peak of ${tight.name}`, table([["Size", NUMBER], ["What", "mono"], ["Where", "mono"]],
    tight.largest.map(held => ({ cells: [size(held.bytes), held.what, held.where] }))));
}

function showHeld() {
  const rows = report.held.map(of => ({ cells: [of.what, size(of.bytes), (100 * of.bytes / report.total_bytes).toFixed(1) + " %"] }));
  if (rows.length) section("Who holds the GPU at the tightest moment", table([["What"], ["Size", NUMBER], ["Of the GPU", NUMBER]], rows));
}

function showSideBySide(title, first, starts) {
  const rows = Object.entries(starts).map(([name, of]) => ({ mark: ["fits", "partial"].includes(of.verdict) ? "" : "bad", cells: [name, verdictText(of), count(of.sizes.kv_tokens)] }));
  if (rows.length > 1) section(title, table([[first], ["Verdict"], ["KV tokens", NUMBER]], rows));
}

function showSizes() {
  const rows = Object.entries(report.sizes).filter(([, value]) => value != null && value.length !== 0)
    .map(([name, value]) => ({ cells: [name.replaceAll("_", " "), Array.isArray(value) ? `${value.length}: ${value.join(" ")}` : count(value)] }));
  if (rows.length) section("Sizes that followed", table([["What"], ["Size"]], rows));
}

function showConstants() {
  if (!report.constants.length) return;
  const rows = report.constants.map(of => ({ cells: [of.times === 1 ? of.name : `${count(of.times)} × ${of.name}`, size(of.bytes), of.source] }));
  section("Outside torch's count: calibrated constants", table([["What"], ["Size", NUMBER], ["Known from"]], rows));
}

function showComparisons() {
  for (const comparison of report.comparisons || []) {
    const amount = (row, n) => row.in_bytes ? size(n) : count(n);
    const rows = comparison.rows.map(row => ({ cells: [row.what, amount(row, row.predicted), amount(row, row.other), row.difference] }));
    section(comparison.title, table([["Step"], ["Predicted", NUMBER], [comparison.other, NUMBER], ["Difference", NUMBER]], rows));
  }
}

headed(`${report.gpu}${report.is_gpu_assumed ? " (assumed)" : ""}, ${size(report.total_bytes)}: ${report.subtitle}`, report.notes);
at("flags").textContent = report.flags;
showVerdict();
drawLegend();
drawZoom();
whenWide(drawChart);
showPhases();
showLargest();
showHeld();
showSideBySide("What if", "Start", { "as is": report, ...report.what_if });
showSideBySide("Ranks", "Rank", Object.fromEntries(report.ranks.map(of => [of.rank_name, of])));
showSweep(report.sweep || {});
showComparisons();
showSizes();
showConstants();
