// Drives one Chromium for the tests: a JSON command per line on stdin, a JSON answer per line on stdout.
// The tests themselves are in tests/web; this file only knows how to look and click.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const ARGUMENTS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];
const PATIENCE_MS = 60_000;
const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM_PATH ?? "/usr/bin/chromium",
  args: ARGUMENTS,
});
let context = null;
let page = null;
let troubles = [];

/** A target is {css} or {role, name} or {label} or {text}, with an optional `nth` and `within`. */
function find({ css, role, name, label, text, nth, within, exact = false }) {
  const base = within ? find(within) : page;
  let found;
  if (css) found = base.locator(css);
  else if (role) found = base.getByRole(role, name === undefined ? {} : { name, exact });
  else if (label) found = base.getByLabel(label, { exact });
  else found = base.getByText(text, { exact });
  return nth === undefined ? found : found.nth(nth);
}

const commands = {
  /** Begin with a clean profile; remember whatever must not happen. */
  async start({ origin, ...options }) {
    await context?.close();
    context = await browser.newContext({ viewport: { width: 1280, height: 860 }, locale: "en-US", ...options });
    context.setDefaultTimeout(PATIENCE_MS);
    troubles = [];
    page = await context.newPage();
    page.on("pageerror", (error) => troubles.push(`error: ${error.message}`));
    page.on("dialog", (dialog) => {
      troubles.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    context.on("page", (other) => troubles.push(`window: ${other.url()}`));
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (/^https?:$/.test(url.protocol) && url.origin !== origin) troubles.push(`request: ${request.url()}`);
    });
    // What the page's policy stops never leaves the browser, though the browser may name it first.
    page.on("requestfailed", (request) => {
      if (request.failure()?.errorText !== "csp") return;
      troubles = troubles.filter((trouble) => trouble !== `request: ${request.url()}`);
    });
    await page.goto(origin);
  },
  troubles: async () => troubles,
  reload: () => page.reload().then(() => null),
  goto: ({ url }) => page.goto(url).then(() => null),
  address: async () => page.url(),
  offline: ({ isOffline }) => context.setOffline(isOffline),
  click: ({ target }) => find(target).click(),
  hover: ({ target }) => find(target).hover(),
  fill: ({ target, value }) => find(target).fill(value),
  choose: ({ target, value }) => find(target).selectOption(value).then(() => null),
  press: ({ target, key }) => find(target).press(key),
  see: ({ target, state = "visible" }) => find(target).first().waitFor({ state }),
  count: ({ target }) => find(target).count(),
  text: ({ target }) => find(target).first().innerText(),
  attribute: ({ target, name }) => find(target).first().getAttribute(name),
  until: ({ script }) => page.waitForFunction(script).then(() => null),
  evaluate: ({ script }) => page.evaluate(script),
  /** Return what hinders people who do not see or point: one line per rule that is broken, with the places. */
  async hindrances() {
    await page.evaluate(readFileSync(AXE, "utf8"));
    const { violations } = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })");
    return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html.slice(0, 200)).join(" | ")}`);
  },
  attach: ({ files }) => page.setInputFiles("input[type=file]", files.map(asFile)),
  drop: ({ files }) => transfer(files, "drop"),
  paste: ({ files }) => transfer(files, "paste"),
  screenshot: ({ path }) => page.screenshot({ path }).then(() => null),
};

function asFile({ name, content }) {
  return { name, mimeType: "application/octet-stream", buffer: Buffer.from(content) };
}

/** Hand files to the page as a mouse or the clipboard would. */
async function transfer(files, kind) {
  await page.evaluate(
    ([list, type]) => {
      const data = new DataTransfer();
      for (const file of list) data.items.add(new File([file.content], file.name));
      const box = document.getElementById("message");
      if (type === "drop") {
        for (const name of ["dragenter", "dragover", "drop"]) {
          box.dispatchEvent(new DragEvent(name, { dataTransfer: data, bubbles: true, cancelable: true }));
        }
      } else {
        box.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
      }
    },
    [files, kind],
  );
}

async function answer(line) {
  const { command, ...options } = JSON.parse(line);
  try {
    return { ok: (await commands[command](options)) ?? null };
  } catch (error) {
    const seen = await page?.evaluate("document.body.innerText").catch(() => "");
    return { error: `${error.message}\n--- the page shows ---\n${seen}` };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await answer(line))}\n`);
}
await browser.close();
