// The page in a real browser: against the stand-in for the server, or, with BASE_URL, against `qgguf serve` itself.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { answered, browser, isMock, limitAnswers, pretend, say, servers } from "./browser.mjs";

let chrome;
let server;

before(async () => {
  [chrome, server] = await Promise.all([browser(), servers()]);
});
after(async () => {
  await chrome?.close();
  server?.close();
});

const PHONE = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };
const answer = (page) => page.locator(".answer.last .prose");

test("a conversation, kept over a reload", async () => {
  const { page, complaints } = await chrome.open(server.url);
  await limitAnswers(page, 12);
  await say(page, "In the beginning");
  await answered(page);
  const first = await answer(page).innerText();
  assert.notEqual(first.trim(), "");
  assert.match(await page.locator(".answer.last .stats").innerText(), /^[\d.,]+ tokens\/s · \d+ tokens?$/);
  assert.match(await page.locator(".context").innerText(), /^[\d,]+ of [\d,]+ tokens$/);

  await say(page, "And then");
  await answered(page);
  const texts = await page.locator(".message").allInnerTexts();
  assert.equal(texts.length, 4);
  assert.match(page.url(), /#\/c\//);

  await page.reload();
  await page.locator(".answer.last").waitFor();
  assert.deepEqual(await page.locator(".bubble").allInnerTexts(), ["In the beginning", "And then"]);
  assert.equal((await page.locator(".prose").first().innerText()).trim(), first.trim());
  assert.deepEqual(complaints, []);
});

test("the second message carries the first, its answer and the system prompt", async () => {
  const { page } = await chrome.open(server.url);
  const bodies = [];
  page.on("request", (request) => request.url().endsWith("completions") && bodies.push(request.postDataJSON()));
  await limitAnswers(page, 4);
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("System prompt").fill("Be brief.");
  await page.getByLabel("Temperature", { exact: true }).fill("0");
  await page.keyboard.press("Tab");
  assert.match(await page.locator(".param.own", { hasText: "Temperature" }).innerText(), /you/);
  await page.getByRole("button", { name: "Close", exact: true }).last().click();
  await say(page, "One");
  await answered(page);
  const first = (await answer(page).innerText()).trim();
  await say(page, "Two");
  await answered(page);
  const { messages, temperature, max_tokens: limit, stream } = bodies[1];
  assert.deepEqual({ temperature, limit, stream }, { temperature: 0, limit: 4, stream: true });
  assert.deepEqual(messages.map(({ role }) => role), ["system", "user", "assistant", "user"]);
  assert.deepEqual([messages[0].content, messages[1].content, messages[3].content], ["Be brief.", "One", "Two"]);
  assert.ok(first.startsWith(messages[2].content.trim().slice(0, 5)));
});

test("stop, by button and by Esc", async () => {
  const { page } = await chrome.open(server.url);
  for (const stop of [() => page.getByRole("button", { name: "Stop", exact: true }).click(), () => page.keyboard.press("Escape")]) {
    await say(page, "a long story");
    await page.locator(".answer.last.live .prose p").waitFor();
    await stop();
    await answered(page);
    assert.equal(await page.locator(".answer.last .problem").innerText(), "Stopped.");
    assert.notEqual(await answer(page).innerText(), "");
  }
});

test("edit and regenerate keep what was there before", async () => {
  const { page } = await chrome.open(server.url);
  await limitAnswers(page, 6);
  await say(page, "First words");
  await answered(page);
  await page.getByRole("button", { name: "Regenerate" }).click();
  await page.locator(".answer.last .siblings", { hasText: "2/2" }).waitFor();
  await answered(page);
  await page.locator(".answer.last").getByRole("button", { name: "Previous version" }).click();
  await page.locator(".answer.last .siblings", { hasText: "1/2" }).waitFor();

  await page.locator(".question").hover();
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: "Edit message" }).fill("Other words");
  await page.locator(".editor").getByRole("button", { name: "Send" }).click();
  await page.locator(".bubble", { hasText: "Other words" }).waitFor();
  await answered(page);
  assert.equal(await page.locator(".message").count(), 2);
  await page.locator(".question").hover();
  await page.locator(".question").getByRole("button", { name: "Previous version" }).click();
  assert.equal(await page.locator(".bubble").innerText(), "First words");
});

test("conversations can be searched, renamed, deleted and brought back", async () => {
  const { page } = await chrome.open(server.url);
  await limitAnswers(page, 2);
  for (const text of ["Apples", "Pears"]) {
    await page.getByRole("button", { name: "New conversation" }).click();
    await limitAnswers(page, 2);
    await say(page, text);
    await answered(page);
  }
  const names = () => page.locator(".conversation a").allInnerTexts();
  assert.deepEqual(await names(), ["Pears", "Apples"]);
  await page.getByRole("searchbox", { name: "Search conversations" }).fill("appl");
  assert.deepEqual(await names(), ["Apples"]);
  await page.getByRole("searchbox", { name: "Search conversations" }).fill("");

  await page.locator(".conversation", { hasText: "Apples" }).hover();
  await page.getByRole("button", { name: "Rename “Apples”" }).click();
  await page.getByRole("textbox", { name: "Name of the conversation" }).fill("Fruit");
  await page.keyboard.press("Enter");
  assert.deepEqual(await names(), ["Pears", "Fruit"]);

  await page.locator(".conversation", { hasText: "Pears" }).hover();
  await page.getByRole("button", { name: "Delete “Pears”" }).click();
  assert.deepEqual(await names(), ["Fruit"]);
  assert.equal(await page.locator(".message").count(), 0);
  await page.getByRole("button", { name: "Undo" }).click();
  assert.deepEqual(await names(), ["Pears", "Fruit"]);
  await page.reload();
  await page.locator(".conversation").first().waitFor();
  assert.deepEqual(await names(), ["Pears", "Fruit"]);
});

test("a conversation deleted while it is answered stays deleted", async () => {
  const { page } = await chrome.open(server.url);
  await say(page, "a long story");
  await page.locator(".answer.last.live .prose p").waitFor();
  await page.locator(".conversation").hover();
  await page.getByRole("button", { name: "Delete “a long story”" }).click();
  await page.locator(".conversation").waitFor({ state: "detached" });
  await page.reload();
  await page.getByText("Conversations stay in this browser.", { exact: true }).waitFor();
});

test("settings survive a look at the model, and can be kept for new conversations", async () => {
  const { page } = await chrome.open(server.url);
  await limitAnswers(page, 7);
  await page.getByRole("link", { name: "Model", exact: true }).click();
  await page.getByRole("link", { name: "Chat", exact: true }).click();
  const limit = page.getByLabel("Longest answer", { exact: true });
  assert.equal(await limit.inputValue(), "7");
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByRole("button", { name: "Use for new conversations" }).click();
  await page.reload();
  await page.getByRole("button", { name: "Settings" }).click();
  assert.equal(await limit.inputValue(), "7");
});

test("several models are a choice, and the request names it", async () => {
  const { page } = await chrome.open("about:blank");
  const asked = [];
  await page.route("**/v1/models", (route) => route.fulfill({ json: { data: [{ id: "small" }, { id: "large" }] } }));
  await page.route("**/props?model=*", (route) => {
    asked.push(new URL(route.request().url()).searchParams.get("model"));
    return route.fulfill({ json: { default_generation_settings: { n_ctx: 4096, params: {} } } });
  });
  await pretend(page, { content: "Yes." });
  await page.goto(server.url);
  await page.getByLabel("Model", { exact: true }).selectOption("large");
  const [request] = await Promise.all([page.waitForRequest("**/v1/chat/completions"), say(page, "Hello")]);
  assert.equal(request.postDataJSON().model, "large");
  await answered(page);
  assert.deepEqual(asked, ["small", "large"]);
});

test("hostile answers stay text, and nothing is asked of another host", async () => {
  const { page, requests, complaints } = await chrome.open(server.url);
  const content = [
    "<script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'> ![pixel](https://evil.example/p.png)",
    "[click](javascript:window.pwned=3) [data](data:text/html,x) [here](https://evil.example/) [slots](/slots?action=erase)",
    "```html\n<script>window.pwned = 4</script>\n```",
    `${">".repeat(5000)} deep`,
  ].join("\n\n");
  await pretend(page, { content, reasoning: "<script>window.pwned = 5</script>" });
  await say(page, "<script>window.pwned = 6</script>");
  await answered(page);
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  assert.equal(await page.locator(".thread :is(script, img, iframe, object, style)").count(), 0);
  assert.match(await answer(page).innerText(), /<script>window\.pwned = 1<\/script>/);
  assert.equal(await page.locator(".bubble").innerText(), "<script>window.pwned = 6</script>");
  const links = await page.locator(".answer a").evaluateAll((all) => all.map(({ href, rel, target }) => [href, rel, target]));
  assert.deepEqual(links.map(([href]) => href), ["https://evil.example/p.png", "https://evil.example/"]);
  assert.ok(links.every(([, rel, target]) => rel === "noopener noreferrer" && target === "_blank"));

  await page.getByRole("link", { name: "Model", exact: true }).click();
  await page.getByRole("heading", { name: "Metadata" }).waitFor();
  const foreign = requests.filter((url) => new URL(url).origin !== new URL(server.url).origin);
  assert.deepEqual(foreign, []);
  assert.deepEqual(complaints, []);
});

test("Markdown becomes elements, code can be copied, thinking is folded", async () => {
  const { page, context } = await chrome.open(server.url);
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await pretend(page, { reasoning: "Hm.", content: "# Title\n\n- **bold** &amp; `code`\n\n|a|b|\n|-|-:|\n|1|2|\n\n```rust\nfn main() {}\n```" });
  await say(page, "Show it");
  await answered(page);
  assert.equal(await page.locator(".prose h1").innerText(), "Title");
  assert.equal(await page.locator(".prose li").innerText(), "bold & code");
  assert.equal(await page.locator(".prose td[data-align=right]").innerText(), "2");
  assert.equal(await page.locator(".code figcaption span").innerText(), "rust");
  await page.getByRole("button", { name: "Copy code" }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "fn main() {}");
  assert.equal(await page.locator(".thoughts").isVisible(), false);
  await page.locator(".thinking summary").click();
  assert.equal(await page.locator(".thoughts").innerText(), "Hm.");
});

test("a key is asked for, a wrong one again, and it lasts as long as the tab", async (t) => {
  if (!server.keyed) return t.skip("no KEYED_URL");
  const { page } = await chrome.open(server.keyed);
  const field = page.getByLabel("API key").getByRole("textbox").or(page.locator("dialog input[type=password]"));
  await field.first().fill("wrong");
  await page.keyboard.press("Enter");
  await page.getByText("did not take this key").waitFor();
  await page.locator("dialog input[type=password]").fill(server.key);
  await page.keyboard.press("Enter");
  await page.locator(".model-name span", { hasText: /\S/ }).waitFor();
  await page.reload();
  await page.locator(".model-name span", { hasText: /\S/ }).waitFor();
  assert.equal(await page.locator("dialog[open]").count(), 0);
  assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("sesame")), false);
});

test("errors say what helps", async () => {
  const cases = [
    [{ status: 429, headers: { "retry-after": "3" }, error: { type: "rate_limit_error", message: "queue" } }, /queue is full\. Try again in 3 seconds/],
    [{ status: 400, error: { type: "exceed_context_size_error", n_prompt_tokens: 9001, n_ctx: 8192, message: "x" } }, /9,001 tokens.*8,192/],
    [{ status: 400, error: { type: "invalid_request_error", message: "top_k: too large" } }, /refused this request: top_k: too large/],
  ];
  for (const [failure, text] of cases) {
    const { page } = await chrome.open(server.url);
    await pretend(page, failure);
    await say(page, "Hello");
    await page.locator(".problem.grave").waitFor();
    assert.match(await page.locator(".problem.grave").innerText(), text);
    await page.unroute("**/v1/chat/completions");
    await limitAnswers(page, 3);
    await page.getByRole("button", { name: "Try again" }).click();
    await answered(page);
    assert.notEqual(await answer(page).innerText(), "");
  }
});

test("a server that is gone is waited for", async () => {
  const { page } = await chrome.open(server.url);
  await limitAnswers(page, 3);
  await page.route("**/*", (route) => route.abort());
  await say(page, "Anyone there?");
  await page.getByText("The server does not answer. Trying again…").waitFor();
  await page.unroute("**/*");
  await page.locator(".notice").waitFor({ state: "hidden" });
  await page.getByRole("button", { name: "Try again" }).click();
  await answered(page);
  assert.notEqual(await answer(page).innerText(), "");
});

test("a connection that breaks off leaves what came", async (t) => {
  if (!isMock) return t.skip("only the stand-in breaks off");
  const { page } = await chrome.open(server.url);
  await say(page, "break off");
  await page.locator(".problem.grave").waitFor();
  assert.equal(await answer(page).innerText(), "This is the beginning of");
});

test("what the model's file holds", async () => {
  const { page } = await chrome.open(`${server.url}/#/model`);
  await page.getByRole("heading", { name: "Tensors" }).waitFor();
  const rows = page.getByRole("region", { name: "Tensors" }).locator("tbody tr:visible");
  const all = await rows.count();
  await page.getByLabel("Filter tensors").fill("blk.0.attn_q");
  assert.equal(await rows.count(), 1);
  assert.ok(all > 5);
  assert.match(await page.locator(".facts").innerText(), /Architecture\s+llama/);
});

test("settings say where they come from", async (t) => {
  if (!isMock) return t.skip("other values on a real server");
  const { page } = await chrome.open(server.url);
  await page.locator(".model-name span", { hasText: /\S/ }).waitFor();
  await page.getByRole("button", { name: "Settings" }).click();
  const row = (label) => page.locator(".param", { hasText: label });
  assert.equal(await row("Temperature").locator("input").getAttribute("placeholder"), "0.2");
  assert.equal(await row("Temperature").locator(".source").innerText(), "model file");
  assert.equal(await row("Top-k").locator(".source").innerText(), "server");
  assert.equal(await row("Seed").locator("input").getAttribute("placeholder"), "random");
  assert.equal(await row("Longest answer").locator("input").getAttribute("placeholder"), "no limit");
});

test("a phone: no sideways scrolling, conversations in a drawer", async () => {
  const { page } = await chrome.open(server.url, PHONE);
  await pretend(page, { content: `${"unbroken".repeat(60)}\n\n\`\`\`\n${"code ".repeat(80)}\n\`\`\`\n\n|${"column|".repeat(12)}\n|${"-|".repeat(12)}\n|${"value|".repeat(12)}` });
  await page.getByRole("textbox", { name: "Message", exact: true }).fill("wide ".repeat(3) + "x".repeat(200));
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await answered(page);
  const overflow = () => page.evaluate(() => [...document.querySelectorAll("html, .thread, .model-page")].some((e) => e.scrollWidth > e.clientWidth));
  assert.equal(await overflow(), false);
  assert.equal(await page.locator(".sidebar").isVisible(), false);
  await page.getByRole("button", { name: "Conversations" }).click();
  await page.locator(".conversation").waitFor();
  await page.getByRole("button", { name: "Close", exact: true }).click();
  await page.getByRole("link", { name: "Model", exact: true }).click();
  await page.getByRole("heading", { name: "Tensors" }).waitFor();
  assert.equal(await overflow(), false);
});

test("dark and light follow the system until chosen", async () => {
  const { page } = await chrome.open(server.url, { colorScheme: "dark" });
  const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const dark = await ground();
  await page.emulateMedia({ colorScheme: "light" });
  const light = await ground();
  assert.notEqual(dark, light);
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByText("Dark", { exact: true }).click();
  assert.equal(await ground(), dark);
  await page.reload();
  assert.equal(await ground(), dark);
});

test("every control has a name", async () => {
  const { page } = await chrome.open(server.url);
  await pretend(page, { content: "```\ncode\n```" });
  await say(page, "Hello");
  await answered(page);
  await page.getByRole("button", { name: "Settings" }).click();
  const nameless = await page.evaluate(() =>
    [...document.querySelectorAll("button, a, input, textarea, select")]
      .filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.length))
      .map((e) => e.outerHTML),
  );
  assert.deepEqual(nameless, []);
});
