// Starts the browser that `cargo xtask test` found, for the tests here.

import { chromium } from "playwright-core";

/** The address of the page, below a path as a project's page has on a shared host. */
export const pageUrl = process.env.PAGE_URL;

/** The page of the book that has the whole page in it; set when the page's tests are to be run there. */
export const embeddedUrl = process.env.EMBEDDED_URL;

/** How the browser is started. */
export function launchOptions() {
  return {
    executablePath: required("CHROMIUM"),
    args: ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking"],
  };
}

/** Starts a browser with a fresh profile. */
export function launch() {
  return chromium.launch(launchOptions());
}

/** What of a tab is the embedded page's, where it is embedded. */
const OF_FRAME = new Set(["evaluate", "title", "waitForFunction"]);
/** The same, of what still finds something after a reload. */
const OF_LOCATOR = new Set(["getByLabel", "getByRole", "getByText", "locator"]);

/** A tab of the book as a tab of the page that is embedded there. */
export async function embedded(tab) {
  const element = tab.locator("bounded-evidence-playground");
  const inside = element.locator("iframe");
  let frame;
  const enter = async () => {
    // It loads when it is seen.
    await element.scrollIntoViewIfNeeded();
    // The keyboard's way through the book is not the page's.
    await inside.focus();
    frame = await (await inside.elementHandle()).contentFrame();
  };
  const reload = async () => {
    await tab.reload();
    await enter();
  };
  await enter();
  return new Proxy(tab, {
    get(_, name) {
      if (name === "reload") {
        return reload;
      }
      const owner = OF_LOCATOR.has(name) ? inside.contentFrame() : OF_FRAME.has(name) ? frame : tab;
      const value = owner[name];
      return typeof value === "function" ? value.bind(owner) : value;
    },
  });
}

/** A variable that the runner of these tests sets. */
export function required(name) {
  const value = process.env[name];
  if (!value) {
    throw new Error(`${name} is not set: run these tests by \`cargo xtask test browser\``);
  }
  return value;
}
