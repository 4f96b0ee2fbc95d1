// Starts the browser that `cargo xtask test` found, for the tests here.

import { chromium } from "playwright-core";

/** The address of the page, below a path as a project's page has on a shared host. */
export const pageUrl = process.env.PAGE_URL;

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

/** A variable that the runner of these tests sets. */
export function required(name) {
  const value = process.env[name];
  if (!value) {
    throw new Error(`${name} is not set: run these tests by \`cargo xtask test browser\``);
  }
  return value;
}
