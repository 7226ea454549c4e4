// The sheet with the settings of the conversation: system prompt, sampling, and how the page looks.

import { el, iconButton } from "../dom.js";
import { PARAMS, parse, serverValue } from "../params.js";
import { setTheme, theme } from "../theme.js";
import { toast } from "./notice.js";

export function settingsSheet(chat, server) {
  const system = el("textarea", {
    id: "system",
    rows: 4,
    dir: "auto",
    placeholder: "None",
    onchange: () => chat.configure({ system: system.value }),
  });
  const rows = PARAMS.map((param) => paramRow(param, chat, server));
  const keep = () => (chat.keepAsDefaults(), toast("New conversations begin with these settings."));
  const element = el(
    "dialog",
    { className: "sheet", "aria-label": "Settings", onclick: ({ target }) => target === element && element.close() },
    el(
      "div",
      { className: "sheet-body" },
      el("header", {}, el("h2", { textContent: "Settings" }), iconButton("close", "Close", () => element.close())),
      el("p", { className: "explanation", textContent: "For this conversation." }),
      el("section", {}, el("label", { className: "title", htmlFor: "system", textContent: "System prompt" }), system),
      el("section", {}, el("h3", { className: "title", textContent: "Sampling" }), ...rows.map((row) => row.element)),
      el("button", { type: "button", className: "button", textContent: "Use for new conversations", onclick: keep }),
      el("section", {}, el("h3", { className: "title", textContent: "Appearance" }), themeChoice()),
    ),
  );

  function draw() {
    if (document.activeElement !== system) system.value = chat.current.system;
    for (const row of rows) row.update();
  }

  function open() {
    draw();
    element.showModal();
  }
  chat.addEventListener("change", draw);
  server.addEventListener("change", draw);
  return { element, open };
}

/** A setting: its value, and who says so: the model file, the server, or the person. */
function paramRow(param, chat, server) {
  const { name, label, hint, min, max, step } = param;
  const set = (value) => {
    const { [name]: _, ...rest } = chat.current.params;
    chat.configure({ params: value === null ? rest : { ...rest, [name]: value } });
  };
  const field = el("input", { id: `param-${name}`, type: "number", inputMode: "decimal", min, max: max ?? "", step, onchange: () => set(parse(field)) });
  field.setAttribute("step", step < 1 ? "any" : step);
  const source = el("span", { className: "source" });
  const reset = iconButton("close", `Reset ${label.toLowerCase()}`, () => set(null));
  const element = el("div", { className: "param", title: hint }, el("label", { htmlFor: field.id, textContent: label }), field, source, reset);

  function update() {
    const own = chat.current.params[name];
    const theirs = serverValue(param, server.props(chat.current.model));
    field.placeholder = theirs.text;
    field.value = own ?? "";
    source.textContent = own === undefined ? theirs.source : "you";
    element.classList.toggle("own", own !== undefined);
    reset.hidden = own === undefined;
  }
  return { element, update };
}

function themeChoice() {
  const choices = ["system", "light", "dark"].map((name) => {
    const radio = el("input", { type: "radio", name: "theme", checked: theme() === name, onchange: () => setTheme(name) });
    return el("label", {}, radio, el("span", { textContent: name[0].toUpperCase() + name.slice(1) }));
  });
  return el("div", { className: "segments", role: "radiogroup", "aria-label": "Appearance" }, choices);
}
