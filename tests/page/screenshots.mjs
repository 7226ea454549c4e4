// Pictures of the page: light and dark, wide and phone. `node screenshots.mjs FOLDER`, against BASE_URL or the stand-in.

import { mkdir } from "node:fs/promises";
import { join } from "node:path";

import { answered, browser, servers } from "./browser.mjs";

const folder = process.argv[2] ?? "screenshots";
const SIZES = { wide: { viewport: { width: 1200, height: 800 } }, phone: { viewport: { width: 390, height: 780 }, hasTouch: true, isMobile: true } };

await mkdir(folder, { recursive: true });
const [chrome, server] = await Promise.all([browser(), servers()]);
for (const colorScheme of ["light", "dark"]) {
  for (const [size, options] of Object.entries(SIZES)) {
    const { page } = await chrome.open(server.url, { colorScheme, ...options });
    const shoot = (name) => page.screenshot({ path: join(folder, `${name}-${colorScheme}-${size}.png`) });
    const click = (role, name) => page.getByRole(role, { name, exact: true }).click();
    const talk = async (text) => {
      await page.getByRole("textbox", { name: "Message", exact: true }).fill(text);
      await click("button", "Send");
      await answered(page);
    };
    await page.locator(".model-name span", { hasText: /\S/ }).waitFor();
    await shoot("empty");
    for (const text of ["Three names for a small boat", "Draft a polite reminder"]) {
      await talk(text);
      if (size === "phone") await click("button", "Conversations");
      await click("button", "New conversation");
    }
    await talk("Why is the sky blue?");
    await shoot("end");
    await page.locator(".thread").evaluate((thread) => thread.scrollTo(0, 0));
    await page.mouse.move(5, 5);
    await shoot("chat");
    if (size === "phone") {
      await click("button", "Conversations");
      await page.waitForTimeout(300);
      await shoot("drawer");
      await click("button", "Close");
    }
    await click("button", "Settings");
    await page.getByLabel("Top-k", { exact: true }).fill("20");
    await page.keyboard.press("Tab");
    await page.waitForTimeout(300);
    await shoot("settings");
    await page.keyboard.press("Escape");
    await click("link", "Model");
    await page.getByRole("heading", { name: "Tensors" }).waitFor();
    await shoot("model");
    await page.context().close();
  }
}
await chrome.close();
server.close();
