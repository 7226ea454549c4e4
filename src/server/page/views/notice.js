// Short messages: a line while the server is away, and toasts.

import { el } from "../dom.js";

const TEXTS = {
  gone: "The server does not answer. Trying again…",
  loading: "The model is being loaded…",
  locked: "The server wants an API key.",
};

/** A line above the composer, empty while all is well. */
export function connectionNotice(server) {
  const text = el("span");
  const enter = el("button", { type: "button", className: "link-button", textContent: "Enter the key", onclick: () => server.connect() });
  const element = el("div", { className: "notice", role: "status" }, text, enter);
  const draw = () => {
    text.textContent = TEXTS[server.state] ?? "";
    enter.hidden = server.state !== "locked";
    element.hidden = !(server.state in TEXTS);
  };
  server.addEventListener("change", draw);
  draw();
  return element;
}

let current = null;

/** Says something for some seconds; `action` is a button { label, run } in it. */
export function toast(message, action) {
  current?.remove();
  const element = el("div", { className: "toast", role: "status" }, el("span", { textContent: message }));
  const close = () => element.remove();
  if (action) {
    const run = () => (close(), action.run());
    element.append(el("button", { type: "button", className: "link-button", textContent: action.label, onclick: run }));
  }
  document.body.append(element);
  setTimeout(close, 7000);
  current = element;
}
