// The messages on show, from the first to the last, and staying at the end while an answer grows.

import { pathOf } from "../conversation.js";
import { arrange, el, iconButton } from "../dom.js";
import { answerView, questionView } from "./message.js";

const NEAR_END_PX = 80;

export function thread(chat, server) {
  const column = el("div", { className: "column" });
  const greeting = el("div", { className: "greeting" });
  const announcement = el("p", { className: "visually-hidden", role: "status" });
  const toEnd = iconButton("down", "To the end", () => scrollToEnd("smooth"), { className: "icon-button to-end" });
  const element = el("div", { className: "thread", tabIndex: -1 }, greeting, column, announcement);
  let views = new Map(); // node -> view
  let shown = null;
  let followsEnd = true;
  let frame = null;

  function draw() {
    const path = pathOf(chat.current);
    const isOther = shown !== chat.current.id;
    const wasRunning = element.ariaBusy === "true";
    shown = chat.current.id;
    if (isOther) views = new Map();
    views = new Map(path.map((node) => [node, views.get(node) ?? viewOf(node)]));
    arrange(column, [...views.values()].map((view) => view.element));
    for (const node of path) update(node);
    greeting.hidden = path.length > 0;
    column.hidden = path.length === 0;
    element.ariaBusy = String(chat.isRunning);
    if (wasRunning && !chat.isRunning && !isOther) announcement.textContent = "The answer is complete.";
    if (chat.isRunning || isOther) announcement.textContent = "";
    if (isOther || path.at(-1)?.state === "waiting") followsEnd = true;
    if (followsEnd) scrollToEnd();
  }

  function viewOf(node) {
    return node.role === "user" ? questionView(chat, node) : answerView(chat, node);
  }

  function update(node) {
    const isLast = node.id === chat.current.leaf;
    views.get(node)?.update({ isLast, isLive: isLast && chat.isRunning });
  }

  /** Many tokens may come within one frame. */
  function progress({ detail: node }) {
    if (!views.has(node) || frame) return;
    frame = requestAnimationFrame(() => {
      frame = null;
      update(node);
      if (followsEnd) scrollToEnd();
    });
  }

  function scrollToEnd(behavior = "instant") {
    element.scrollTo({ top: element.scrollHeight, behavior });
  }

  function greet() {
    const name = server.models.length > 0 ? (chat.current.model ?? server.models[0]) : "";
    greeting.replaceChildren(
      el("h1", { textContent: "What is on your mind?" }),
      el("p", { textContent: name ? `${name} answers from this server; conversations stay in this browser.` : "" }),
    );
  }

  element.addEventListener("scroll", () => {
    followsEnd = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PX;
    toEnd.hidden = followsEnd;
  });
  toEnd.hidden = true;
  chat.addEventListener("change", draw);
  chat.addEventListener("change", greet);
  chat.addEventListener("progress", progress);
  server.addEventListener("change", greet);
  greet();
  draw();
  return el("div", { className: "thread-frame" }, element, toEnd);
}
