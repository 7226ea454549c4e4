// Talking to the server: JSON requests, the event stream of an answer, and the key.

/** An answer with an error status, or an error inside a stream. */
export class ApiError extends Error {
  constructor(status, error = {}, retryAfter = null) {
    super(error.message ?? `status ${status}`);
    this.status = status;
    this.type = error.type ?? "";
    this.nPromptTokens = error.n_prompt_tokens;
    this.nContext = error.n_ctx;
    this.retryAfter = retryAfter;
  }
}

/** The server could not be reached, or the connection broke off. */
export class Unreachable extends Error {}

const KEY = "qgguf.key";
let askForKey = async () => null;
let asking = null;

/** `ask(wrong)` shows the person a question and resolves to a key, or to null. `wrong` says that a key was refused. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** A response with a good status. Asks for the key as long as the server wants one. */
async function request(path, { body, signal } = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const response = await send(path, body, key, signal);
    if (response.ok) return response;
    const error = await errorOf(response);
    if (response.status !== 401) throw error;
    if (sessionStorage.getItem(KEY) !== key) continue; // given to another request in the meantime
    asking ??= askForKey(key !== null).finally(() => (asking = null));
    const given = await asking;
    if (given === null) throw error;
    sessionStorage.setItem(KEY, given);
  }
}

async function send(path, body, key, signal) {
  const headers = {};
  if (body) headers["Content-Type"] = "application/json";
  if (key) headers.Authorization = `Bearer ${key}`;
  try {
    return await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    throw signal?.aborted ? error : new Unreachable("the server does not answer");
  }
}

async function errorOf(response) {
  const body = await response.json().catch(() => ({}));
  const seconds = Number(response.headers.get("Retry-After"));
  return new ApiError(response.status, body.error, seconds > 0 ? seconds : null);
}

/** What `GET path` answers. */
export async function getJson(path) {
  const response = await request(path);
  return response.json().catch(() => {
    throw new Unreachable("the server's answer broke off");
  });
}

/** Whether the server is up and its model loaded. */
export async function isHealthy() {
  return fetch("health").then((response) => response.ok, () => false);
}

/** The chunks of a chat completion, as they come. */
export async function* streamChat(body, signal) {
  const response = await request("v1/chat/completions", { body: { ...body, stream: true }, signal });
  let finished = false;
  for await (const data of events(textOf(response, signal))) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.code ?? 500, chunk.error);
    finished ||= Boolean(chunk.choices?.[0]?.finish_reason);
    yield chunk;
  }
  if (!finished) throw new Unreachable("the connection broke off");
}

async function* textOf(response, signal) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } catch (error) {
    throw signal?.aborted ? error : new Unreachable("the connection broke off");
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The data of each server-sent event in pieces of text; comments and other fields are passed over. */
export async function* events(pieces) {
  let rest = "";
  let data = [];
  for await (const piece of pieces) {
    const lines = (rest + piece).split("\n");
    rest = lines.pop();
    for (const line of lines.map((line) => line.replace(/\r$/, ""))) {
      if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      if (line === "" && data.length > 0) {
        yield data.join("\n");
        data = [];
      }
    }
  }
}
