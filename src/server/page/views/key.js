// The question for the API key.

import { el } from "../dom.js";

/** Resolves to the key, or to null if the person gave none. */
export function askForKey(wasWrong) {
  const field = el("input", { type: "password", name: "key", required: true, autocomplete: "off", "aria-label": "API key" });
  const explanation = wasWrong
    ? "The server did not take this key."
    : "This server asks for a key (the one it was started with). It is kept until you close this tab.";
  const dialog = el(
    "dialog",
    { className: "ask", "aria-label": "API key" },
    el(
      "form",
      { method: "dialog" },
      el("h2", { textContent: "API key" }),
      el("p", { textContent: explanation }),
      field,
      el(
        "div",
        { className: "buttons" },
        el("button", { type: "button", className: "button", textContent: "Cancel", onclick: () => dialog.close("") }),
        el("button", { type: "submit", className: "button primary", textContent: "Continue", value: "given" }),
      ),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "given" ? field.value.trim() : null);
    });
  });
}
