// A stand-in for `qgguf serve`: the page's files and canned answers, so that the page can be tested without a model.
// `node mock.mjs [PORT]` serves it for a look.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";

import { inspected, answerTo, props } from "./canned.mjs";

const PAGE = new URL("../../src/server/page/", import.meta.url);
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml" };

/** Starts a server on a free port, or on the one given. With a key, the API wants it. */
export async function startMock({ key = null, port = 0, delay = 15 } = {}) {
  const server = createServer((request, response) => handle(request, response, { key, delay }).catch(() => response.destroy()));
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => (server.closeAllConnections(), server.close()) };
}

async function handle(request, response, { key, delay }) {
  const { pathname } = new URL(request.url, "http://mock");
  if (pathname === "/health") return json(response, 200, { status: "ok" });
  if (await sendFile(pathname, response)) return;
  if (key && request.headers.authorization !== `Bearer ${key}`) return error(response, 401, "authentication_error", "Invalid API Key");
  switch (pathname) {
    case "/v1/models":
      return json(response, 200, { object: "list", data: [{ id: "Stand-in-135M", object: "model" }] });
    case "/props":
      return json(response, 200, props);
    case "/inspect":
      return json(response, 200, inspected);
    case "/v1/chat/completions":
      return complete(JSON.parse(await bodyOf(request)), response, delay);
    default:
      return error(response, 404, "not_found_error", "File Not Found");
  }
}

async function sendFile(pathname, response) {
  const path = pathname === "/" ? "index.html" : pathname.slice(1);
  const type = TYPES[extname(path)];
  const body = type && (await readFile(fileURLToPath(new URL(path, PAGE))).catch(() => null));
  if (!body) return false;
  response.writeHead(200, { "Content-Type": type, "Cache-Control": "no-cache", "Content-Security-Policy": "default-src 'self'" });
  response.end(body);
  return true;
}

async function complete({ messages, max_tokens: limit = Infinity }, response, delay) {
  const { reasoning, content, breaksAt = Infinity } = answerTo(messages.at(-1).content);
  const pieces = [...split(reasoning, "reasoning_content"), ...split(content, "content")].slice(0, limit);
  const promptTokens = messages.reduce((sum, message) => sum + split(message.content, "").length + 4, 0);
  const chunk = (rest) => response.write(`data: ${JSON.stringify({ id: "chatcmpl-1", object: "chat.completion.chunk", ...rest })}\n\n`);
  const delta = (delta, finish_reason = null) => chunk({ choices: [{ index: 0, delta, finish_reason }] });
  const started = Date.now();

  response.writeHead(200, { "Content-Type": "text/event-stream" });
  delta({ role: "assistant", content: null });
  for (const [at, piece] of pieces.entries()) {
    if (response.destroyed) return;
    if (at === breaksAt) return response.destroy();
    delta(piece);
    if (delay) await sleep(delay);
  }
  const n = pieces.length;
  const ms = Math.max(1, Date.now() - started);
  delta({}, n === limit ? "length" : "stop");
  chunk({
    choices: [],
    usage: { prompt_tokens: promptTokens, completion_tokens: n, total_tokens: promptTokens + n },
    timings: { cache_n: 0, prompt_n: promptTokens, prompt_ms: 80, predicted_n: n, predicted_ms: ms, predicted_per_second: (1000 * n) / ms },
  });
  response.end("data: [DONE]\n\n");
}

function split(text = "", field) {
  return (text.match(/\s*\S+\s*$|\s*\S+/g) ?? []).map((piece) => ({ [field]: piece }));
}

async function bodyOf(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

function json(response, status, value) {
  response.writeHead(status, { "Content-Type": "application/json" });
  response.end(JSON.stringify(value));
}

function error(response, status, type, message) {
  json(response, status, { error: { code: status, type, message } });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await startMock({ port: Number(process.argv[2] ?? 0) });
  console.log(url);
}
