// What the page knows of the server: its models, its settings, whether it is there.

import { ApiError, Unreachable, getJson, isHealthy } from "./api.js";

const POLL_MS = 2000;

/** Fires "change" when anything it knows changes. */
export class Server extends EventTarget {
  /** "connecting", "ready", "locked" (no key given), "loading" (the model) or "gone". */
  state = "connecting";
  /** Names of the models, the default one first. */
  models = [];
  #props = new Map();
  #files = new Map();

  /** Asks the server what it has, until it answers. */
  async connect() {
    try {
      const { data } = await getJson("v1/models");
      this.models = data.map(({ id }) => id);
      this.#props.clear();
      await this.loadProps(this.models[0]);
      this.#become("ready");
    } catch (error) {
      this.noteFailure(error);
    }
  }

  /** What `/props` says of a model, null until loaded. */
  props(model) {
    return this.#props.get(model ?? this.models[0]) ?? null;
  }

  async loadProps(model) {
    if (this.#props.has(model)) return;
    this.#props.set(model, await getJson(this.#path("props", model)));
    this.dispatchEvent(new Event("change"));
  }

  /** Positions of the context, null while unknown. */
  contextSize(model) {
    return this.props(model)?.default_generation_settings?.n_ctx ?? null;
  }

  /** Whether the template of the model can leave thinking out. */
  canSwitchThinking(model) {
    return /\benable_thinking\b/.test(this.props(model)?.chat_template ?? "");
  }

  /** What `qgguf inspect --json` prints of a model's file. */
  async inspect(model) {
    if (!this.#files.has(model)) this.#files.set(model, await getJson(this.#path("inspect", model)));
    return this.#files.get(model);
  }

  /** Takes note if an error says that the server is away, and then waits for it. */
  noteFailure(error) {
    if (error instanceof Unreachable) this.#wait("gone");
    else if (error instanceof ApiError && error.status === 503) this.#wait("loading");
    else if (error instanceof ApiError && error.status === 401) this.#become("locked");
    else if (this.state === "connecting") this.#wait("gone");
  }

  async #wait(state) {
    if (this.state === state) return;
    this.#become(state);
    do await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    while (!(await isHealthy()));
    this.state = "connecting";
    await this.connect();
  }

  #become(state) {
    this.state = state;
    this.dispatchEvent(new Event("change"));
  }

  #path(route, model) {
    return this.models.length > 1 ? `${route}?model=${encodeURIComponent(model)}` : route;
  }
}
