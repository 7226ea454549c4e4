// Starts the page: puts its parts together and follows the address.
// #/ is a new conversation, #/c/ID one that is kept, #/model what is in the model's file.

import { onKeyNeeded } from "./api.js";
import { Chat } from "./chat.js";
import { titleOf } from "./conversation.js";
import { el } from "./dom.js";
import { Server } from "./server.js";
import { openStore } from "./store.js";
import { applyTheme } from "./theme.js";
import { composer } from "./views/composer.js";
import { header } from "./views/header.js";
import { askForKey } from "./views/key.js";
import { modelView } from "./views/model.js";
import { connectionNotice, toast } from "./views/notice.js";
import { settingsSheet } from "./views/settings.js";
import { sidebar } from "./views/sidebar.js";
import { thread } from "./views/thread.js";

applyTheme();
onKeyNeeded(askForKey);

const store = await openStore();
const server = new Server();
const chat = new Chat(store, server);

const settings = settingsSheet(chat, server);
const side = sidebar(chat, store);
const top = header(chat, server, { openSidebar: side.open, openSettings: settings.open });
const input = composer(chat, server);
const chatPage = el("main", { className: "chat" }, thread(chat, server), connectionNotice(server), input.element);
const model = modelView(chat, server);

document.body.append(el("div", { className: "app" }, side.element, el("div", { className: "page" }, top.element, chatPage, model.element)), settings.element);

function follow() {
  const [, route, id] = location.hash.split("/");
  const isModel = route === "model";
  chatPage.hidden = isModel;
  model.element.hidden = !isModel;
  top.showTab(isModel ? "model" : "chat");
  side.close();
  if (isModel) model.load();
  else if (chat.current.id !== id) chat.open(id);
  retitle();
  if (!isModel) input.focus();
}

/** The address names a conversation as soon as it has a message; the window's title follows. */
function retitle() {
  const { id, leaf } = chat.current;
  if (!location.hash.startsWith("#/model")) {
    if (leaf) history.replaceState(null, "", `#/c/${id}`);
    document.title = leaf ? `${titleOf(chat.current)} · qgguf` : "qgguf";
  } else {
    document.title = "Model · qgguf";
  }
}

window.addEventListener("hashchange", follow);
chat.addEventListener("change", retitle);
store.addEventListener("failure", () => toast("This browser did not keep the last change: its storage is full or closed."));
if (!store.isKept) toast("This browser keeps nothing here: conversations end with this tab.");
follow();
server.connect();
