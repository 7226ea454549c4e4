// What the tests share: the servers under test, the browser, and moves that a person makes.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

import { startMock } from "./mock.mjs";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

/** Whether the stand-in answers, and not a server of `BASE_URL`. */
export const isMock = !process.env.BASE_URL;

/** A server without a key and one with: those of `BASE_URL`, `KEYED_URL` and `API_KEY`, or the stand-in. */
export async function servers() {
  const { BASE_URL, KEYED_URL, API_KEY = "open sesame" } = process.env;
  const started = [];
  const start = async (options) => {
    const mock = await startMock(options);
    started.push(mock);
    return mock.url;
  };
  const url = BASE_URL ?? (await start({}));
  const keyed = KEYED_URL ?? (isMock ? await start({ key: API_KEY }) : null);
  return { url, keyed, key: API_KEY, close: () => started.forEach((mock) => mock.close()) };
}

/** Debian's Chromium with an empty profile. */
export async function browser() {
  const profile = await mkdtemp(join(tmpdir(), "qgguf-page-"));
  const chrome = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: [...FLAGS, `--disk-cache-dir=${profile}`] });
  return {
    /** A page of its own (nothing kept from others), and what it asked for and complained about. */
    async open(url, options = {}) {
      const context = await chrome.newContext({ viewport: { width: 1280, height: 800 }, ...options });
      const page = await context.newPage();
      page.setDefaultTimeout(10_000);
      const requests = [];
      const complaints = [];
      context.on("request", (request) => requests.push(request.url()));
      page.on("pageerror", (error) => complaints.push(String(error)));
      page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
      await page.goto(url);
      return { page, context, requests, complaints };
    },
    async close() {
      await chrome.close();
      await rm(profile, { recursive: true, force: true });
    },
  };
}

/** Writes a message and sends it. */
export async function say(page, text) {
  await page.getByRole("textbox", { name: "Message", exact: true }).fill(text);
  await page.keyboard.press("Enter");
}

/** Waits until the answer is complete. */
export async function answered(page) {
  await page.getByRole("button", { name: "Send", exact: true }).waitFor();
  await page.locator(".answer.last:not(.live)").waitFor();
}

/** Limits answers, so that a model that does not know when to stop does. */
export async function limitAnswers(page, tokens) {
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Longest answer", { exact: true }).fill(String(tokens));
  await page.keyboard.press("Tab");
  await page.keyboard.press("Escape");
}

/** Makes the server say this, whatever is asked. */
export async function pretend(page, { content, reasoning = "", status = 200, error, headers = {} }) {
  const chunk = (rest) => `data: ${JSON.stringify(rest)}\n\n`;
  const delta = (delta, finish_reason = null) => chunk({ choices: [{ index: 0, delta, finish_reason }] });
  const stream = () =>
    delta({ role: "assistant", content: null }) + (reasoning && delta({ reasoning_content: reasoning })) + delta({ content }) + delta({}, "stop") + "data: [DONE]\n\n";
  await page.route("**/v1/chat/completions", (route) =>
    route.fulfill({
      status,
      headers: { "content-type": error ? "application/json" : "text/event-stream", ...headers },
      body: error ? JSON.stringify({ error }) : stream(),
    }),
  );
}
