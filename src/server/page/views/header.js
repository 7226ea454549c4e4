// The bar at the top: the model, the two tabs, the way to settings and conversations.

import { arrange, el, iconButton } from "../dom.js";

export function header(chat, server, { openSidebar, openSettings }) {
  const model = el("div", { className: "model-name" });
  const tabs = { chat: tab("Chat", "#/"), model: tab("Model", "#/model") };
  const element = el(
    "header",
    { className: "top" },
    iconButton("menu", "Conversations", openSidebar, { className: "icon-button narrow-only" }),
    model,
    el("nav", { className: "tabs", "aria-label": "Page" }, tabs.chat, tabs.model),
    iconButton("sliders", "Settings", openSettings),
  );
  const draw = () => arrange(model, [modelChoice(chat, server)]);
  server.addEventListener("change", draw);
  chat.addEventListener("change", () => {
    tabs.chat.hash = chat.current.leaf ? `#/c/${chat.current.id}` : "#/";
    if (server.models.length > 1) draw();
  });
  draw();

  function showTab(name) {
    for (const [key, link] of Object.entries(tabs)) link.ariaCurrent = key === name ? "page" : null;
  }
  return { element, showTab };
}

function tab(label, href) {
  return el("a", { textContent: label, href });
}

/** The model's name, or a choice if the server has several. */
function modelChoice(chat, server) {
  const { models } = server;
  if (models.length < 2) return el("span", { textContent: models[0] ?? "", title: models[0] ?? "" });
  const choose = ({ target }) => {
    chat.configure({ model: target.value });
    server.loadProps(target.value).catch((error) => server.noteFailure(error));
  };
  const options = models.map((name) => el("option", { textContent: name, value: name }));
  const select = el("select", { "aria-label": "Model", onchange: choose }, options);
  select.value = chat.current.model ?? models[0];
  return select;
}
