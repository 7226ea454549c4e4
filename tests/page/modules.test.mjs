// Modules of the page that need no browser.

import assert from "node:assert/strict";
import { test } from "node:test";

import { events } from "../../src/server/page/api.js";
import { addNode, messagesFor, newConversation, pathOf, showNode, siblingsOf } from "../../src/server/page/conversation.js";

async function eventsOf(text, size) {
  const pieces = text.match(new RegExp(`[^]{1,${size}}`, "g")) ?? [];
  const found = [];
  for await (const data of events(pieces)) found.push(data);
  return found;
}

test("events are the same however the stream is cut", async () => {
  const stream = ': ping\n\ndata: {"a":1}\r\n\r\nevent: x\ndata:two\ndata: lines\n\n:\n\ndata: [DONE]\n\ndata: cut off';
  for (let size = 1; size <= stream.length; size += 1) {
    assert.deepEqual(await eventsOf(stream, size), ['{"a":1}', "two\nlines", "[DONE]"], `pieces of ${size}`);
  }
});

test("an edit is a sibling, and each path keeps its own end", () => {
  const conversation = newConversation();
  const first = addNode(conversation, null, "user", "a");
  const answer = addNode(conversation, first.id, "assistant", "b");
  const edited = addNode(conversation, null, "user", "c");
  edited.created = first.created + 1;
  assert.deepEqual(pathOf(conversation).map((node) => node.content), ["c"]);
  assert.deepEqual(siblingsOf(conversation, edited), [first, edited]);
  showNode(conversation, first);
  assert.equal(conversation.leaf, answer.id);
});

test("roles alternate even after an answer that failed", () => {
  const conversation = newConversation({ system: "S" });
  const first = addNode(conversation, null, "user", "a");
  const failed = addNode(conversation, first.id, "assistant");
  const second = addNode(conversation, failed.id, "user", "b");
  const answer = addNode(conversation, second.id, "assistant", "c");
  answer.reasoning = "why";
  const third = addNode(conversation, answer.id, "user", "d");
  assert.deepEqual(messagesFor(conversation, third.id), [
    { role: "system", content: "S" },
    { role: "user", content: "a\n\nb" },
    { role: "assistant", content: "c", reasoning_content: "why" },
    { role: "user", content: "d" },
  ]);
});
