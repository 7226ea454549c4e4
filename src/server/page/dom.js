// Building elements. Text always goes in as text; nothing here, or elsewhere on the page, parses markup.

/** An element. Props that start with "on" are listeners, those the element knows are properties, the rest attributes. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node) node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

/** A symbol of icons.svg; decoration, so hidden from screen readers. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `icons.svg#${name}`);
  svg.append(use);
  return svg;
}

/** A bar that is filled to a share from 0 to 1. Decoration: the number stands beside it. */
export function bar() {
  const svg = document.createElementNS(SVG, "svg");
  const rect = document.createElementNS(SVG, "rect");
  svg.setAttribute("class", "bar");
  svg.setAttribute("aria-hidden", "true");
  rect.setAttribute("height", "100%");
  svg.append(rect);
  return svg;
}

/** Fills a bar. */
export function fill(bar, share) {
  bar.firstChild.setAttribute("width", `${100 * Math.min(1, share)}%`);
  return bar;
}

/** A button that shows an icon and has a name. */
export function iconButton(name, label, onclick, props = {}) {
  return el("button", { type: "button", className: "icon-button", title: label, "aria-label": label, onclick, ...props }, icon(name));
}

/** Gives an icon button another icon and name. */
export function setIcon(button, name, label) {
  button.firstChild.firstChild.setAttribute("href", `icons.svg#${name}`);
  button.title = label;
  button.setAttribute("aria-label", label);
}

/** A button that copies what `text` returns, and says that it did. */
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    const copied = await copy(text());
    setIcon(button, copied ? "check" : "close", copied ? "Copied" : "Could not copy");
    setTimeout(() => setIcon(button, "copy", label), 1500);
  });
  return button;
}

/** Browsers give `navigator.clipboard` to HTTPS and localhost only; a server in the local network needs the old way. */
async function copy(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(() => true, () => false);
  }
  const area = el("textarea", { className: "visually-hidden", value: text });
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}

/** Makes `parent` hold exactly `children`, in order, and touches only what differs. */
export function arrange(parent, children) {
  children.forEach((child, at) => {
    if (parent.children[at] !== child) parent.insertBefore(child, parent.children[at] ?? null);
  });
  while (parent.children.length > children.length) parent.lastElementChild.remove();
}

/** 1234567 as "1,234,567". */
export function count(n) {
  return n.toLocaleString("en-US");
}
