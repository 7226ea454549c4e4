// The conversations: search, open, rename, delete.

import { matches, titleOf } from "../conversation.js";
import { arrange, el, icon, iconButton } from "../dom.js";
import { toast } from "./notice.js";

const DAY = 24 * 60 * 60 * 1000;

export function sidebar(chat, store) {
  const query = el("input", { type: "search", placeholder: "Search", "aria-label": "Search conversations", oninput: draw });
  const list = el("nav", { className: "conversations", "aria-label": "Conversations" });
  const aside = el(
    "aside",
    { className: "sidebar", "aria-label": "Conversations" },
    el(
      "div",
      { className: "sidebar-top" },
      el("span", { className: "brand", textContent: "qgguf" }),
      iconButton("close", "Close", close, { className: "icon-button narrow-only" }),
    ),
    el("button", { type: "button", className: "new-chat", onclick: startNew }, icon("plus"), "New conversation"),
    el("div", { className: "search" }, icon("search"), query),
    list,
  );
  const element = el("div", { className: "drawer", onclick: ({ target }) => target === element && close() }, aside);
  element.addEventListener("keydown", ({ key }) => key === "Escape" && close());

  function open() {
    element.classList.add("open");
    query.focus({ preventScroll: true });
  }

  function close() {
    element.classList.remove("open");
  }

  function startNew() {
    location.hash = "#/";
    chat.open(null);
    close();
    document.querySelector("#message").focus();
  }

  function remove(conversation) {
    if (conversation === chat.current) location.hash = "#/";
    chat.remove(conversation);
    toast("Conversation deleted.", { label: "Undo", run: () => chat.restore(conversation) });
  }

  function draw() {
    const shown = store.list().filter((conversation) => matches(conversation, query.value.trim()));
    const groups = groupBy(shown, ageOf);
    const rows = [...groups].flatMap(([age, members]) => [
      el("h2", { textContent: age }),
      ...members.map((conversation) => row(conversation, { isCurrent: chat.current.id === conversation.id, store, remove })),
    ]);
    if (rows.length === 0) rows.push(el("p", { className: "nothing", textContent: query.value ? "Nothing found." : "Conversations stay in this browser." }));
    arrange(list, rows);
  }

  // Drawn anew as a whole, but not under the hands of someone who renames one.
  const redraw = () => list.querySelector("input") || draw();
  store.addEventListener("change", redraw);
  chat.addEventListener("change", redraw);
  draw();
  return { element, open, close };
}

function row(conversation, { isCurrent, store, remove }) {
  const title = titleOf(conversation);
  const link = el("a", { href: `#/c/${conversation.id}`, title, textContent: title, "aria-current": isCurrent ? "page" : null });
  const rename = iconButton("pencil", `Rename “${title}”`, () => element.replaceChildren(nameField(conversation, title, store)));
  const element = el("div", { className: "conversation" }, link, rename, iconButton("trash", `Delete “${title}”`, () => remove(conversation)));
  rename.addEventListener("click", () => element.querySelector("input").select());
  return element;
}

/** Enter and leaving the field keep the name, Esc does not. */
function nameField(conversation, title, store) {
  const finish = () => {
    const name = field.value.trim();
    field.remove();
    if (name && name !== title) conversation.title = name;
    store.save(conversation);
  };
  const field = el("input", { type: "text", value: title, "aria-label": "Name of the conversation", maxLength: 200 });
  field.addEventListener("blur", finish, { once: true });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") field.value = title;
    if (event.key === "Escape" || event.key === "Enter") field.blur();
    event.stopPropagation();
  });
  return field;
}

function ageOf({ updated }) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (updated >= midnight) return "Today";
  if (updated >= midnight - DAY) return "Yesterday";
  return updated >= midnight - 7 * DAY ? "This week" : "Earlier";
}

function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return groups;
}
