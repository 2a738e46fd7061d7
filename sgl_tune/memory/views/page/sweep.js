// ---- the sweep: what each value gives to the KV cache against what it leaves

function showSweep(sweep) {
  const starts = Object.entries(sweep).map(([name, of]) => ({ value: name.split("=").slice(1).join("="), of, fits: of.verdict === "fits" }));
  if (!starts.length) return;
  const chart = element("div", { className: "chart" });
  section("What each step of the sweep gives to the KV cache, and leaves free", chart);
  whenWide(() => chart.replaceChildren(sweepDrawn(starts, chart.clientWidth)));
}

function sweepDrawn(starts, width) {
  const height = 240, left = 62, right = width - 24, top = 26, bottom = height - 40;
  const tokens = starts.map(({ of }) => of.sizes.kv_tokens);
  const isApart = tokens.every(n => n != null) && new Set(tokens).size === tokens.length && tokens.length > 1;
  const along = isApart ? tokens : starts.map((_, i) => i), first = Math.min(...along), last = Math.max(...along, first + 1);
  const most = Math.max(GIB, ...starts.filter(start => start.fits).map(({ of }) => of.free_at_peak_bytes)) * 1.1;
  const x = i => left + 16 + (along[i] - first) / (last - first) * (right - left - 32), y = bytes => bottom - Math.min(1, bytes / most) * (bottom - top);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "KV tokens against the memory free at the peak" });
  drawFailing(svg, starts, x, { left, right, top, bottom });
  sweepGrid(svg, most, y, left, right);
  const fitting = starts.map((start, i) => [start, i]).filter(([start]) => start.fits);
  const line = fitting.map(([{ of }, i]) => `${x(i).toFixed(1)},${y(of.free_at_peak_bytes).toFixed(1)}`).join("L");
  if (line) svg.append(shape("path", { d: `M${line}`, fill: "none", stroke: "var(--allocated)", "stroke-width": 2 }));
  starts.forEach((start, i) => drawStart(svg, start, x(i), start.fits ? y(start.of.free_at_peak_bytes) : bottom));
  drawTokens(svg, tokens, x, bottom, right - left);
  svg.append(shape("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, isApart ? "KV tokens per rank" : "in the order asked"));
  return svg;
}

function drawFailing(svg, starts, x, { left, right, top, bottom }) {
  starts.forEach((start, i) => {
    if (start.fits) return;
    const from = i ? (x(i - 1) + x(i)) / 2 : left, to = i + 1 < starts.length ? (x(i) + x(i + 1)) / 2 : right;
    svg.append(shape("rect", { x: Math.min(from, to), y: top, width: Math.abs(to - from), height: bottom - top, fill: "var(--bad-wash)" }));
  });
  const middle = starts.map((start, i) => [start, x(i)]).filter(([start]) => !start.fits).map(([, at]) => at);
  if (middle.length) svg.append(shape("text", { x: (middle[0] + middle.at(-1)) / 2, y: top + 14, "text-anchor": "middle", style: "fill: var(--bad)" }, "does not fit"));
}

function sweepGrid(svg, most, y, left, right) {
  const unit = [.25, .5, 1, 2, 5, 10, 20, 50].find(gib => most / GIB / gib <= 6) || 100;
  for (let gib = 0; gib * GIB <= most; gib += unit) {
    svg.append(shape("line", { class: "grid", x1: left, x2: right, y1: y(gib * GIB), y2: y(gib * GIB) }));
    svg.append(shape("text", { x: left - 8, y: y(gib * GIB) + 4, "text-anchor": "end" }, `${gib} GiB`));
  }
  const bar = report.margin_bytes;
  if (!bar || bar >= most) return;
  svg.append(shape("line", { class: "limit", x1: left, x2: right, y1: y(bar), y2: y(bar) }));
  svg.append(shape("text", { x: left + 6, y: y(bar) - 5, style: "fill: var(--limit)" }, `±${size(bar)}`));
}

function drawStart(svg, start, cx, cy) {
  if (start.fits) svg.append(shape("circle", { cx, cy, r: 4, fill: "var(--allocated)" }));
  else svg.append(shape("path", { d: `M${cx - 5},${cy - 5}l10,10m0,-10l-10,10`, stroke: "var(--limit)", "stroke-width": 3 }));
  svg.append(shape("text", { x: cx + 5, y: cy - 9, class: "value" }, start.value));
}

/** As many as have room. */
function drawTokens(svg, tokens, x, bottom, width) {
  const every = Math.ceil(tokens.length / Math.max(1, Math.floor(width / 84)));
  tokens.forEach((n, i) => {
    if (n != null && i % every === 0) svg.append(shape("text", { x: x(i), y: bottom + 16, "text-anchor": "middle" }, n >= 1e6 ? `${(n / 1e6).toFixed(2)}M` : `${Math.round(n / 1e3)}k`));
  });
}
