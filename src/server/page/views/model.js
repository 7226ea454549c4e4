// The tab "Model": what is in the model's file, as `qgguf inspect` shows it.

import { bar, count, el, fill } from "../dom.js";
import { explain } from "../errors.js";

const LONG_TEXT = 160;
const LONG_ARRAY = 8;

export function modelView(chat, server) {
  const element = el("main", { className: "model-page" });

  async function load() {
    if (server.models.length === 0) {
      element.replaceChildren(el("p", { className: "pending", textContent: "Waiting for the server…" }));
      return;
    }
    try {
      element.replaceChildren(page(await server.inspect(chat.current.model ?? server.models[0])));
    } catch (error) {
      server.noteFailure(error);
      element.replaceChildren(el("p", { className: "problem grave", role: "alert", textContent: explain(error) }));
    }
  }
  server.addEventListener("change", () => element.hidden || load());
  chat.addEventListener("change", () => element.hidden || load());
  return { element, load };
}

function page(file) {
  return el(
    "div",
    { className: "wide-column" },
    el("h1", { textContent: nameOf(file) }),
    facts(file),
    el(
      "div",
      { className: "two" },
      section("Where the parameters are", shares(file.parameters, "part")),
      section("Types of the weights", shares(file.types, "type")),
    ),
    filtered("Metadata", Object.entries(file.metadata).map(metadataRow), ["Key", "Type", "Value"]),
    filtered("Tensors", file.tensors.map(tensorRow), ["Name", "Shape", "Type", "Size"]),
  );
}

function nameOf({ metadata, file }) {
  return metadata["general.name"]?.value ?? file.split("/").at(-1);
}

function facts(file) {
  const all = {
    File: file.file.split("/").at(-1),
    Architecture: file.architecture,
    Parameters: si(file.n_parameters),
    Active: file.active && `${si(file.active.n_parameters)} (${file.active.n_experts_used} of ${file.active.n_experts} experts)`,
    Size: bytes(file.n_bytes),
    "File type": file.file_type,
    "Bits per weight": file.bits_per_weight?.toFixed(2),
    "Trained context": contextOf(file),
    "GGUF version": String(file.version),
    Shards: file.shards.length > 1 ? String(file.shards.length) : null,
  };
  const known = Object.entries(all).filter(([, value]) => value);
  return el("dl", { className: "facts" }, known.map(([name, value]) => el("div", {}, el("dt", { textContent: name }), el("dd", { textContent: value }))));
}

function contextOf({ metadata, architecture }) {
  const length = metadata[`${architecture}.context_length`]?.value;
  return typeof length === "number" ? `${count(length)} tokens` : null;
}

function section(title, ...content) {
  return el("section", {}, el("h2", { textContent: title }), ...content);
}

/** Parts of the whole, with their share as a bar. */
function shares(parts, name) {
  const rows = parts
    .filter((part) => part.n_tensors > 0)
    .map((part) =>
      el(
        "tr",
        {},
        el("th", { scope: "row", textContent: part[name] }),
        el("td", { className: "share" }, fill(bar(), part.share)),
        el("td", { className: "number", textContent: `${(100 * part.share).toFixed(1)} %` }),
        el("td", { className: "number", textContent: si(part.n_parameters) }),
        el("td", { className: "number", textContent: bytes(part.n_bytes) }),
      ),
    );
  return el("div", { className: "table-frame" }, el("table", { className: "shares" }, el("tbody", {}, rows)));
}

/** A table whose rows can be searched. */
function filtered(title, rows, columns) {
  const search = el("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${title.toLowerCase()}` });
  const texts = rows.map((row) => row.textContent.toLowerCase());
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    rows.forEach((row, at) => (row.hidden = !texts[at].includes(wanted)));
  });
  const head = el("tr", {}, columns.map((column) => el("th", { scope: "col", textContent: column })));
  return el(
    "section",
    {},
    el("div", { className: "section-head" }, el("h2", {}, title, el("span", { className: "n", textContent: count(rows.length) })), search),
    el("div", { className: "table-frame", tabIndex: 0, role: "region", "aria-label": title }, el("table", {}, el("thead", {}, head), el("tbody", {}, rows))),
  );
}

function metadataRow([key, { type, value }]) {
  return el("tr", {}, el("th", { scope: "row", textContent: key }), el("td", { className: "type", textContent: type }), el("td", { className: "value" }, shown(value)));
}

function tensorRow({ name, shape, type, n_bytes: size }) {
  return el(
    "tr",
    {},
    el("th", { scope: "row", textContent: name }),
    el("td", { textContent: shape.join(" × ") }),
    el("td", { textContent: type }),
    el("td", { className: "number", textContent: bytes(size) }),
  );
}

/** A value; long ones unfold. */
function shown(value) {
  if (Array.isArray(value)) return array(value);
  const text = String(value);
  if (text.length <= LONG_TEXT && !text.includes("\n")) return text;
  const start = text.replace(/\s+/g, " ").slice(0, LONG_TEXT);
  return el("details", {}, el("summary", { textContent: `${start}…` }), el("pre", { textContent: text }));
}

function array(value) {
  const start = value.slice(0, LONG_ARRAY).map((element) => JSON.stringify(element)).join(", ");
  return value.length > LONG_ARRAY ? `${start}, … (${count(value.length)} values)` : start;
}

function si(n) {
  const [divisor, unit] = n >= 1e9 ? [1e9, " B"] : n >= 1e6 ? [1e6, " M"] : n >= 1e3 ? [1e3, " K"] : [1, ""];
  return `${(n / divisor).toLocaleString("en-US", { maximumFractionDigits: divisor === 1 ? 0 : 2 })}${unit}`;
}

function bytes(n) {
  const power = Math.min(3, Math.floor(Math.log2(Math.max(n, 1)) / 10));
  return `${(n / 1024 ** power).toLocaleString("en-US", { maximumFractionDigits: 1 })} ${["B", "KiB", "MiB", "GiB"][power]}`;
}
