// One message: a question in a bubble, an answer as text, with what can be done about it below.

import { siblingsOf } from "../conversation.js";
import { copyButton, count, el, icon, iconButton } from "../dom.js";
import { MarkdownView } from "../markdown.js";

/** What the person said. Editing it says something else in its place. */
export function questionView(chat, node) {
  const bubble = el("div", { className: "bubble", dir: "auto", textContent: node.content });
  const siblings = siblingChoice(chat, node);
  const edit = iconButton("pencil", "Edit", startEditing);
  const actions = el("footer", { className: "actions" }, siblings.element, copyButton("Copy", () => node.content), edit);
  const element = el("article", { className: "message question", "aria-label": "You" }, bubble, actions);

  function startEditing() {
    const editor = editorOf(node.content, { save: (text) => (stopEditing(), chat.edit(node, text)), cancel: stopEditing });
    element.replaceChildren(editor);
    element.classList.add("editing");
    const field = editor.querySelector("textarea");
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }

  function stopEditing() {
    element.classList.remove("editing");
    element.replaceChildren(bubble, actions);
    edit.focus();
  }

  function update() {
    siblings.update();
    edit.disabled = chat.isRunning;
  }
  return { element, update };
}

function editorOf(text, { save, cancel }) {
  const field = el("textarea", { value: text, "aria-label": "Edit message", rows: 3, dir: "auto" });
  const submit = () => field.value.trim() && save(field.value.trim());
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") cancel();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit();
  });
  return el(
    "form",
    { className: "editor", onsubmit: (event) => (event.preventDefault(), submit()) },
    field,
    el(
      "div",
      { className: "buttons" },
      el("button", { type: "button", className: "button", textContent: "Cancel", onclick: cancel }),
      el("button", { type: "submit", className: "button primary", textContent: "Send" }),
    ),
  );
}

/** What the model said. */
export function answerView(chat, node) {
  const thinking = thinkingView(node);
  const prose = el("div", { className: "prose" });
  const markdown = new MarkdownView(prose);
  const pending = el("p", { className: "pending" });
  const problem = el("p", { className: "problem", role: "alert" });
  const retry = el("button", { type: "button", className: "button", textContent: "Try again", onclick: () => chat.regenerate(node) });
  const siblings = siblingChoice(chat, node);
  const stats = el("span", { className: "stats" });
  const copy = copyButton("Copy", () => node.content);
  const again = iconButton("again", "Regenerate", () => chat.regenerate(node));
  const actions = el("footer", { className: "actions" }, siblings.element, copy, again, stats);
  const element = el("article", { className: "message answer", "aria-label": "Answer" }, thinking.element, prose, pending, problem, actions);

  function update({ isLast, isLive }) {
    thinking.update(isLive);
    markdown.update(node.content);
    pending.hidden = !isLive || Boolean(node.content || node.reasoning);
    pending.textContent = pendingText(node);
    const trouble = isLive ? "" : troubleOf(node);
    problem.hidden = !trouble;
    problem.classList.toggle("grave", node.state === "failed");
    if (problem.firstChild?.textContent !== trouble) problem.replaceChildren(el("span", { textContent: trouble }), node.state === "failed" ? retry : "");
    stats.textContent = statsText(node);
    stats.title = promptText(node);
    element.classList.toggle("last", isLast);
    element.classList.toggle("live", isLive);
    copy.hidden = again.hidden = isLive;
    again.disabled = chat.isRunning;
    siblings.update();
  }
  return { element, update };
}

function thinkingView(node) {
  const label = el("span");
  const text = el("div", { className: "thoughts", dir: "auto" });
  const element = el("details", { className: "thinking" }, el("summary", {}, icon("right"), label), text);

  function update(isLive) {
    element.hidden = !node.reasoning;
    if (!node.reasoning) return;
    const isThinking = isLive && !node.content;
    element.classList.toggle("busy", isThinking);
    label.textContent = isThinking ? "Thinking" : node.thoughtFor ? `Thought for ${seconds(node.thoughtFor)}` : "Thoughts";
    if (text.textContent !== node.reasoning) text.textContent = node.reasoning;
  }
  return { element, update };
}

/** ‹ 2/3 ›, if something else was said in the same place. */
function siblingChoice(chat, node) {
  const place = el("span");
  const step = (by) => () => {
    const siblings = siblingsOf(chat.current, node);
    chat.show(siblings[siblings.indexOf(node) + by]);
  };
  const previous = iconButton("left", "Previous version", step(-1));
  const next = iconButton("right", "Next version", step(1));
  const element = el("span", { className: "siblings" }, previous, place, next);

  function update() {
    const siblings = siblingsOf(chat.current, node);
    const at = siblings.indexOf(node);
    element.hidden = siblings.length < 2;
    place.textContent = `${at + 1}/${siblings.length}`;
    previous.disabled = at === 0 || chat.isRunning;
    next.disabled = at === siblings.length - 1 || chat.isRunning;
  }
  return { element, update };
}

function pendingText({ progress }) {
  if (!progress || !(progress.total > 0) || progress.processed >= progress.total) return "";
  return `Reading, ${Math.floor((100 * progress.processed) / progress.total)} %`;
}

function troubleOf(node) {
  if (node.state === "failed") return node.problem;
  if (node.state === "stopped") return "Stopped.";
  if (node.state !== "done") return "Not finished."; // the page was closed, or it goes on in another tab
  if (node.finish === "context") return "The context is full. Start a new conversation, or edit an earlier message to go on from there.";
  if (node.finish === "length") return "Stopped at the longest answer allowed (see the settings).";
  return "";
}

function statsText({ stats }) {
  if (!stats?.tokens) return "";
  const parts = [`${count(stats.tokens)} ${stats.tokens === 1 ? "token" : "tokens"}`];
  if (stats.perSecond > 0) parts.unshift(`${stats.perSecond.toFixed(1)} tokens/s`);
  return parts.join(" · ");
}

function promptText({ stats }) {
  if (!stats?.promptTokens) return "";
  const cached = stats.cached > 0 ? `, ${count(stats.cached)} more were known` : "";
  return `Read ${count(stats.promptTokens)} tokens in ${seconds(stats.promptSeconds)}${cached}`;
}

function seconds(n) {
  return n < 10 ? `${n.toFixed(1)} s` : `${Math.round(n)} s`;
}
