// ---- what every page is made of

const at = id => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function shape(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text != null) made.textContent = text;
  return made;
}

function table(titles, rows) {
  const cell = (kind, value, i) => element(kind, { className: titles[i][1] || "" }, value instanceof Node ? value : String(value));
  const head = element("tr", {}, ...titles.map((title, i) => cell("th", title[0], i)));
  const labelled = (made, i) => { made.dataset.label = titles[i][0]; return made; };
  const body = rows.map(row => element("tr", { className: row.mark || "" }, ...row.cells.map((value, i) => labelled(cell("td", value, i), i))));
  return element("div", { className: "scroll" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
}

/** Drawn now, and again whenever the page has another width. */
function whenWide(draw) {
  draw();
  addEventListener("resize", draw);
}

function section(title, ...content) {
  at("sections").append(element("section", {}, element("h2", {}, title), ...content));
}

