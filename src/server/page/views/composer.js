// Where a message is written. Enter sends and Shift-Enter begins a line; on a touch keyboard Enter begins a line.

import { pathOf } from "../conversation.js";
import { bar, count, el, fill, iconButton, setIcon } from "../dom.js";

/** The share of the context from which on the bar warns. */
const NEARLY_FULL = 0.85;

export function composer(chat, server) {
  const hasTouchKeyboard = matchMedia("(pointer: coarse) and (hover: none)");
  const field = el("textarea", { id: "message", rows: 1, placeholder: "Write a message", "aria-label": "Message", dir: "auto", oninput: draw });
  const submit = iconButton("send", "Send", () => (chat.isRunning ? chat.stop() : send()), { className: "icon-button send" });
  const thinks = el("input", { type: "checkbox", onchange: () => chat.configure({ thinking: thinks.checked }) });
  const thinking = el("label", { className: "toggle" }, thinks, "Think");
  const meter = bar();
  const numbers = el("span");
  const context = el("span", { className: "context" }, meter, numbers);
  const box = el("div", { className: "box", onclick: ({ target }) => target === box && focus() }, field, el("div", { className: "box-foot" }, thinking, context, submit));
  const element = el("form", { className: "composer", onsubmit: (event) => event.preventDefault() }, box);

  function send() {
    const text = field.value.trim();
    if (!text || chat.isRunning) return;
    field.value = "";
    chat.send(text);
  }

  function focus() {
    if (!hasTouchKeyboard.matches) field.focus();
  }

  function draw() {
    setIcon(submit, chat.isRunning ? "stop" : "send", chat.isRunning ? "Stop" : "Send");
    submit.disabled = !chat.isRunning && !field.value.trim();
    thinks.checked = chat.current.thinking;
    thinking.hidden = !server.canSwitchThinking(chat.current.model);
    drawContext();
    fit(field);
  }

  function drawContext() {
    const used = pathOf(chat.current).findLast((node) => node.stats?.context)?.stats.context;
    const size = server.contextSize(chat.current.model);
    context.hidden = !size;
    if (!size) return;
    meter.toggleAttribute("hidden", !used);
    fill(meter, (used ?? 0) / size);
    meter.classList.toggle("high", used > NEARLY_FULL * size);
    numbers.textContent = used ? `${count(used)} of ${count(size)} tokens` : `${count(size)} tokens of context`;
  }

  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || hasTouchKeyboard.matches) return;
    event.preventDefault();
    send();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) chat.stop();
    if (event.key === "/" && document.activeElement === document.body) (event.preventDefault(), field.focus());
  });
  for (const source of [chat, server]) source.addEventListener("change", draw);
  chat.addEventListener("progress", drawContext);
  draw();
  return { element, focus };
}

/** Grows a field with its text, where the style sheet cannot. */
function fit(field) {
  if (CSS.supports("field-sizing", "content")) return;
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}
