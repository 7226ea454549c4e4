// A conversation is a tree: editing a message or asking anew adds a sibling, so nothing said is ever lost.
// `leaf` is the end of the path on show. Plain data, as it is stored.
//
//   conversation { id, title, created, updated, model, system, params, thinking, leaf, nodes: { id: node } }
//   node         { id, parent, role, content, reasoning, created, state, problem, finish, stats, thoughtFor }
// state: "waiting", "answering", then "done", "stopped" or "failed"; finish: "stop", "length" or "context" (full).

/** An empty conversation with these settings. */
export function newConversation({ model = null, system = "", params = {}, thinking = true } = {}) {
  const now = Date.now();
  return { id: newId(), title: "", created: now, updated: now, model, system, params: { ...params }, thinking, leaf: null, nodes: {} };
}

/** Adds a message below `parent` (null: at the beginning) and shows it. */
export function addNode(conversation, parent, role, content = "") {
  const node = { id: newId(), parent, role, content, created: Date.now() };
  conversation.nodes[node.id] = node;
  conversation.leaf = node.id;
  conversation.updated = node.created;
  return node;
}

/** The messages from the first one to `leaf`. */
export function pathOf(conversation, leaf = conversation.leaf) {
  const path = [];
  for (let node = conversation.nodes[leaf]; node; node = conversation.nodes[node.parent]) path.push(node);
  return path.reverse();
}

/** The node and what was written in its place, oldest first. */
export function siblingsOf(conversation, node) {
  return childrenOf(conversation, node.parent);
}

/** Shows the path through `node`, down to what was written last below it. */
export function showNode(conversation, node) {
  let leaf = node;
  for (let next = node; next; next = childrenOf(conversation, next.id).at(-1)) leaf = next;
  conversation.leaf = leaf.id;
}

function childrenOf(conversation, parent) {
  return Object.values(conversation.nodes)
    .filter((node) => node.parent === parent)
    .sort((a, b) => a.created - b.created);
}

/** The messages of a request whose answer goes below `leaf`. Roles alternate, as many templates demand. */
export function messagesFor(conversation, leaf) {
  const messages = conversation.system.trim() ? [{ role: "system", content: conversation.system }] : [];
  for (const { role, content, reasoning } of pathOf(conversation, leaf)) {
    if (role === "assistant" && !content) continue; // failed, or stopped before its first word
    const last = messages.at(-1);
    if (last?.role === role) last.content += `\n\n${content}`;
    else messages.push(reasoning ? { role, content, reasoning_content: reasoning } : { role, content });
  }
  return messages;
}

/** What a conversation is called until someone renames it: the beginning of its first message. */
export function titleOf(conversation) {
  if (conversation.title) return conversation.title;
  const first = pathOf(conversation)[0]?.content.trim().replace(/\s+/g, " ") ?? "";
  return first.length > 60 ? `${first.slice(0, 60).trimEnd()}…` : first || "New conversation";
}

/** Whether all words of `query` occur in the title or in the messages. */
export function matches(conversation, query) {
  if (query === "") return true;
  const text = [titleOf(conversation), ...Object.values(conversation.nodes).map((node) => node.content)].join("\n").toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/** `crypto.randomUUID` exists on HTTPS and localhost only. */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => byte.toString(36).padStart(2, "0")).join("");
}
