// ---- what every page is made of

const at = id => document.getElementById(id);

const report = JSON.parse(at("data").textContent);

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


function headed(subtitle, notes) {
  at("title").textContent = report.title;
  at("subtitle").textContent = subtitle;
  at("notes").append(...notes.map(note => element("li", {}, note)));
}

/** What `facts` makes stands beside `made` while one points at it, or has come to it with the Tab key. */
function tells(made, facts) {
  const tip = at("tip"), hide = () => { tip.hidden = true; };
  const show = (left, top) => {
    tip.replaceChildren(...facts());
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, left + 16 + box.width > innerWidth ? left - box.width - 16 : left + 16) + "px";
    tip.style.top = Math.max(8, Math.min(top + 12, innerHeight - box.height - 8)) + "px";
  };
  made.addEventListener("pointermove", event => show(event.clientX, event.clientY));
  made.addEventListener("pointerleave", hide);
  made.addEventListener("focus", () => { const box = made.getBoundingClientRect(); show(box.right, box.top + 20); });
  made.addEventListener("blur", hide);
  return made;
}
