// The conversation on show and the answers under way. Views listen to it and call it; it knows no elements.

import { streamChat } from "./api.js";
import { addNode, messagesFor, newConversation, showNode } from "./conversation.js";
import { explain } from "./errors.js";

const DEFAULTS = "qgguf.defaults";
const SAVE_EVERY_MS = 1000;

/** Fires "change" when another path is on show or a message came or went, "progress" (detail: node) as answers grow. */
export class Chat extends EventTarget {
  #store;
  #server;
  #running = new Map(); // conversation id -> AbortController

  constructor(store, server) {
    super();
    this.#store = store;
    this.#server = server;
    this.current = this.#fresh();
    store.addEventListener("elsewhere", ({ detail }) => this.#changedElsewhere(detail));
  }

  /** Whether the conversation on show is being answered. */
  get isRunning() {
    return this.#running.has(this.current.id);
  }

  /** Shows a conversation that is kept, or a new one. */
  open(id) {
    const isEmpty = !this.current.leaf && !this.#store.get(this.current.id);
    if (id || !isEmpty) this.current = this.#store.get(id) ?? this.#fresh();
    this.#changed();
  }

  /** Adds a message to the end of what is on show and has it answered. */
  send(text) {
    this.#say(this.current.leaf, text);
  }

  /** Says something else in place of a message; what was said stays beside it. */
  edit(node, text) {
    this.#say(node.parent, text);
  }

  /** Another answer in place of this one. */
  regenerate(node) {
    if (!this.isRunning) this.#answer(this.current, node.parent);
  }

  stop() {
    this.#running.get(this.current.id)?.abort();
  }

  /** Shows a sibling. */
  show(node) {
    if (this.isRunning) return;
    showNode(this.current, node);
    this.#store.save(this.current);
    this.#changed();
  }

  /** Changes settings of the conversation on show. One that is empty is kept when something is said. */
  configure(change) {
    Object.assign(this.current, change);
    if (this.current.leaf) this.#store.save(this.current);
    this.#changed();
  }

  /** Forgets a conversation, and stops its answer. */
  remove(conversation) {
    this.#running.get(conversation.id)?.abort();
    this.#store.remove(conversation.id);
    if (conversation === this.current) this.current = this.#fresh();
    this.#changed();
  }

  /** Brings one back. */
  restore(conversation) {
    this.#store.save(conversation);
    this.#changed();
  }

  /** New conversations begin with the settings of this one. */
  keepAsDefaults() {
    const { system, params, thinking } = this.current;
    localStorage.setItem(DEFAULTS, JSON.stringify({ system, params, thinking }));
  }

  #fresh() {
    return newConversation(JSON.parse(localStorage.getItem(DEFAULTS) ?? "{}"));
  }

  #say(parent, text) {
    if (this.isRunning) return;
    const { id } = addNode(this.current, parent, "user", text);
    this.#answer(this.current, id);
  }

  async #answer(conversation, parent) {
    const abort = new AbortController();
    const node = addNode(conversation, parent, "assistant");
    node.state = "waiting";
    this.#running.set(conversation.id, abort);
    this.#store.save(conversation);
    this.#changed();
    try {
      await this.#receive(conversation, node, abort.signal);
      node.state = "done";
    } catch (error) {
      node.state = abort.signal.aborted ? "stopped" : "failed";
      if (node.state === "failed") {
        node.problem = explain(error);
        this.#server.noteFailure(error);
      }
    }
    this.#running.delete(conversation.id);
    if (this.#store.get(conversation.id)) this.#store.save(conversation); // else removed meanwhile
    this.#changed();
  }

  async #receive(conversation, node, signal) {
    const clock = new Clock();
    let saved = Date.now();
    for await (const chunk of streamChat(requestFor(conversation, node.parent), signal)) {
      take(chunk, node, clock);
      this.dispatchEvent(new CustomEvent("progress", { detail: node }));
      if (Date.now() - saved > SAVE_EVERY_MS && !signal.aborted) {
        saved = Date.now();
        this.#store.save(conversation);
      }
    }
    const size = this.#server.contextSize(conversation.model);
    if (node.finish === "length" && node.stats?.context >= size) node.finish = "context";
  }

  #changedElsewhere(id) {
    if (id !== this.current.id || this.isRunning) return;
    this.open(id);
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}

function requestFor(conversation, leaf) {
  const { model, params, thinking } = conversation;
  return {
    ...(model && { model }),
    messages: messagesFor(conversation, leaf),
    ...params,
    ...(!thinking && { chat_template_kwargs: { enable_thinking: false } }),
    stream_options: { include_usage: true },
    return_progress: true,
  };
}

/** Counts tokens as they come, for a speed before the server says its own. */
class Clock {
  tokens = 0;
  started = null;
  thinkingSince = null;

  tick() {
    this.started ??= performance.now();
    this.tokens += 1;
  }

  perSecond() {
    const seconds = (performance.now() - this.started) / 1000;
    return this.tokens > 1 && seconds > 0 ? (this.tokens - 1) / seconds : null;
  }
}

/** Adds what a chunk brings to the answer. */
function take(chunk, node, clock) {
  const choice = chunk.choices?.[0];
  const { content, reasoning_content: reasoning } = choice?.delta ?? {};
  if (reasoning || content) {
    clock.tick();
    node.state = "answering";
    node.stats = { ...node.stats, tokens: clock.tokens, perSecond: clock.perSecond() };
  }
  if (reasoning) {
    clock.thinkingSince ??= performance.now();
    node.reasoning = (node.reasoning ?? "") + reasoning;
  }
  if (content) {
    if (clock.thinkingSince) node.thoughtFor ??= (performance.now() - clock.thinkingSince) / 1000;
    node.content += content;
  }
  if (choice?.finish_reason) node.finish = choice.finish_reason;
  if (chunk.prompt_progress) node.progress = chunk.prompt_progress;
  if (chunk.usage || chunk.timings) node.stats = { ...node.stats, ...statsOf(chunk) };
}

/** What the server measured, as far as the chunk has it. */
function statsOf({ usage, timings }) {
  const stats = {};
  if (usage) {
    stats.tokens = usage.completion_tokens;
    stats.context = usage.prompt_tokens + usage.completion_tokens;
    stats.cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  }
  if (timings) {
    stats.tokens = timings.predicted_n;
    stats.perSecond = timings.predicted_per_second;
    stats.context ??= (timings.cache_n ?? 0) + timings.prompt_n + timings.predicted_n;
    stats.promptSeconds = timings.prompt_ms / 1000;
    stats.promptTokens = timings.prompt_n;
  }
  return stats;
}
