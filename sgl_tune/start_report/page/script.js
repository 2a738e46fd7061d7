const took = n => n == null ? "–" : n >= 99.95 ? Math.round(n) + " s" : n.toFixed(1) + " s";
const hit = phase => phase.hit == null ? "unknown" : phase.hit ? "yes" : "no";
const none = () => element("span", { className: "none" }, "–");
const shown = name => name === "tactics" ? "autotune" : name;
report.phases.forEach(phase => phase.name = shown(phase.name));
[...report.spans, ...(report.against ? report.against.changes : [])].forEach(one => one.phase = shown(one.phase));
const phaseOf = name => report.phases.find(phase => phase.name === name);

// ---- the timeline: builds stand out, what nothing explains is hatched

const BUILT = "var(--limit)", UNKNOWN = "var(--outside)";
const PLAIN = ["var(--allocated)", "var(--other-1)", "var(--other-4)", "var(--other-0)", "var(--other-5)", "var(--other-2)"];
const plain = [...new Set(report.spans.map(span => span.phase))].filter(name => name !== "unexplained" && !(phaseOf(name) || {}).store);
const colourOf = name => name === "unexplained" ? UNKNOWN : (phaseOf(name) || {}).store ? BUILT : PLAIN[plain.indexOf(name) % PLAIN.length];

function drawChart() {
  const width = Math.max(280, at("chart").clientWidth), left = 4, right = 8, height = 46, row = 20;
  const wall = Math.max(report.wall_seconds, .001), x = seconds => left + seconds / wall * (width - left - right);
  const named = report.phases.filter(phase => phase.seconds / wall >= .01);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height + 34 + row * named.length}`, role: "img", "aria-label": "Each second of the start by phase" });
  for (const span of report.spans) svg.append(drawSpan(span, x, 0, height));
  const unit = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600].find(step => wall / step <= width / 70) || 7200;
  for (let second = 0; second <= wall; second += unit) {
    svg.append(shape("line", { class: "grid", x1: x(second), x2: x(second), y1: 0, y2: height + 30 + row * named.length }));
    svg.append(shape("text", { x: Math.min(x(second) + 3, width - 34), y: height + 14 }, `${second} s`));
  }
  named.forEach((phase, i) => drawRow(svg, phase, x, height + 26 + i * row, width));
  at("chart").replaceChildren(svg);
}

/** One phase a row, with its name where there is room for it. */
function drawRow(svg, phase, x, top, width) {
  const own = report.spans.filter(span => span.phase === phase.name);
  for (const span of own) svg.append(drawSpan(span, x, top, 14));
  const last = Math.max(...own.map(span => x(span.begins + span.seconds))), first = x(own[0].begins);
  const text = `${phase.name} ${took(phase.seconds)}`, needs = text.length * 7 + 8;
  const right = width - last > needs, left = !right && first > needs;
  svg.append(shape("text", { class: right || left ? "value" : "inside", x: right ? last + 5 : left ? first - 5 : Math.min(first + 5, width - needs), y: top + 11, "text-anchor": left ? "end" : "start" }, text));
}

function drawSpan(span, x, top, height) {
  const made = shape("rect", { class: "span", x: x(span.begins), y: top, width: Math.max(1, x(span.begins + span.seconds) - x(span.begins)), height,
    fill: colourOf(span.phase), tabindex: 0, role: "button", "aria-label": `${span.phase}, ${took(span.seconds)}` });
  return tells(made, () => spanFacts(span));
}

function spanFacts(span) {
  const phase = phaseOf(span.phase);
  return [element("h3", {}, span.what ? `${span.phase}: ${span.what}` : span.phase),
    element("div", {}, `${took(span.seconds)} from ${took(span.begins)} on`),
    element("div", {}, phase ? phase.cause : "no line of the log names it")];
}

function drawLegend() {
  const key = (colour, text) => element("span", {}, element("i", { style: `background: ${colour}` }), text);
  at("legend").append(key(BUILT, "builds what a store could hold"), key(PLAIN[0], "the rest, one colour per phase"), key(UNKNOWN, "unexplained"));
}

// ---- the words

function showVerdict() {
  const box = at("verdict");
  box.className = !report.ready ? "bad" : report.saves_seconds >= .05 ? "warn" : "";
  if (report.verdict) box.append(element("strong", {}, report.verdict), element("p", {}, element("code", {}, report.death)));
  for (const remedy of report.to_do) box.append(element("p", { className: "remedy" }, `To do: ${remedy}`));
  box.append(element("strong", {}, report.headline));
  if (report.against) box.append(element("p", {}, report.against.headline));
  for (const phase of report.phases) {
    if (phase.remedy && phase.hit !== true) box.append(element("p", { className: "remedy" }, `${phase.name}, ${took(phase.saves_seconds)}: ${phase.remedy}`));
  }
}

function showPhases() {
  const rows = report.phases.map(phase => ({ mark: phase.hit === false ? "bad" : "",
    cells: [phase.name, took(phase.begins), took(phase.seconds), phase.store || none(), phase.store ? hit(phase) : none(),
      phase.saves_seconds == null ? none() : took(phase.saves_seconds), phase.cause] }));
  if (report.unexplained_seconds >= 0.05) rows.push({ cells: ["unexplained", none(), took(report.unexplained_seconds), none(), none(), none(), "no line of the log names it"] });
  section("Phases", table([["Phase"], ["From", "number"], ["Took", "number"], ["Store"], ["Hit"], ["Saves", "number"], ["Cause"]], rows));
}

function showAgainst() {
  if (!report.against) return;
  const rows = report.against.changes.map(one => ({ cells: [one.phase, took(one.before), took(one.after), (one.difference > 0 ? "+" : "") + one.difference.toFixed(1) + " s"] }));
  section("Against the earlier start", table([["Phase"], ["Was", "number"], ["Is", "number"], ["Difference", "number"]], rows));
}

function showStores() {
  const files = report.caches.map(file => ({ cells: [file.path, file.loaded == null ? "unknown" : file.loaded ? "yes" : "no", file.entries ?? "–", file.why_not || ""] }));
  if (files.length) section("Files of tactics", table([["File", "mono"], ["Loaded"], ["Entries", "number"], ["Why not"]], files));
  const findings = report.findings.map(one => ({ cells: [one.text, one.count] }));
  if (findings.length) section("Also in this log", table([["Finding"], ["Lines", "number"]], findings));
  const written = (report.written || []).map(one => ({ cells: [one.store, one.folder, one.files.toLocaleString("en-US"), one.bytes.toLocaleString("en-US")] }));
  if (written.length) section("Written into the stores", table([["Store"], ["Folder", "mono"], ["Files", "number"], ["Bytes", "number"]], written));
}

function showLastWords() {
  const rows = report.last_words.map(word => ({ cells: [word.rank, took(report.wall_seconds - word.at), word.text] }));
  if (rows.length) section("Last line of each rank, the longest silent first", table([["Rank"], ["Silent for", "number"], ["Said", "mono"]], rows));
}

headed(report.ready ? `ready: ${report.ready_by}` : "not ready", report.all_notes);
showVerdict();
drawLegend();
whenWide(drawChart);
showPhases();
showAgainst();
showStores();
showLastWords();
