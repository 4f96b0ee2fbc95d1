// Serves the model worker or the whole page, the small checkpoints, and hosts that fail in the ways that
// hosts do.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import path from "node:path";

import { required } from "../browser/chromium.mjs";

const MEDIA_TYPES = {
  ".css": "text/css",
  ".html": "text/html",
  ".js": "text/javascript",
  ".json": "application/json",
  ".mjs": "text/javascript",
  ".wasm": "application/wasm",
};
/** Where the page is, as a project's page is on a shared host. */
const PAGE_BASE = "/some/project/path/";

/**
 * What may be done to a file on its way, by the first part of its path: `/cut/<checkpoint>/<file>`. Each is
 * given the response, the file's bytes and the request.
 */
const FAULTS = {
  checkpoints: (response, bytes) => response.end(bytes),
  html: (response) => {
    response.setHeader("content-type", "text/html; charset=utf-8");
    response.end("<!doctype html><title>This is a page</title>");
  },
  forbidden: (response) => {
    response.statusCode = 403;
    response.end();
  },
  busy: (response) => {
    response.statusCode = 503;
    response.end();
  },
};

/** A host on a port of its own. */
export class Host {
  #server;
  #base = "/";
  /** The requests so far, as "/path" or "/path from 123". */
  requests = [];
  /** The files that end early from now on: their names, and after how many bytes. */
  cuts = new Map();
  /** Headers of every answer. */
  headers = {};
  #checkpoints;

  /** A host of the worker on an empty page, or of the built page below a path; and of a folder's checkpoints. */
  static async start({ page = false, checkpoints = required("CHECKPOINTS") } = {}) {
    const host = new Host();
    host.#checkpoints = checkpoints;
    if (page) {
      host.#base = PAGE_BASE;
    }
    host.#server = createServer((request, response) => host.#answer(request, response).catch(() => response.destroy()));
    await new Promise((resolve) => host.#server.listen(0, "127.0.0.1", resolve));
    return host;
  }

  get url() {
    return `http://127.0.0.1:${this.#server.address().port}${this.#base}`;
  }

  async stop() {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request, response) {
    const { pathname } = new URL(request.url, this.url);
    const start = /^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1];
    this.requests.push(start === undefined ? pathname : `${pathname} from ${start}`);
    for (const [name, value] of Object.entries(this.headers)) {
      response.setHeader(name, value);
    }
    if (pathname === "/") {
      response.setHeader("content-type", "text/html");
      response.end("<!doctype html><title>model</title>");
      return;
    }
    const relative = pathname.startsWith(this.#base) ? pathname.slice(this.#base.length) : pathname.slice(1);
    const [kind, ...rest] = relative.split("/");
    const file = this.#fileOf(kind, rest);
    let bytes;
    try {
      bytes = await readFile(file);
    } catch {
      response.statusCode = 404;
      response.end("there is no such file");
      return;
    }
    response.setHeader("content-type", MEDIA_TYPES[path.extname(file)] ?? "application/octet-stream");
    if (!(kind in FAULTS)) {
      response.end(bytes);
      return;
    }
    if (start !== undefined && kind === "checkpoints") {
      response.statusCode = 206;
      response.setHeader("content-range", `bytes ${start}-${bytes.length - 1}/${bytes.length}`);
      bytes = bytes.subarray(Number(start));
    }
    const cut = this.cuts.get(path.basename(file));
    if (cut !== undefined && cut < bytes.length) {
      response.setHeader("content-length", bytes.length);
      response.write(bytes.subarray(0, cut), () => setTimeout(() => response.destroy(), 200));
      return;
    }
    response.setHeader("content-length", bytes.length);
    FAULTS[kind](response, bytes);
  }

  /** A file of the worker, of what it is measured against, of a checkpoint, or of the page. */
  #fileOf(kind, rest) {
    if (kind in FAULTS) {
      return path.join(this.#checkpoints, ...rest);
    }
    if (kind === "peers") {
      return path.join(import.meta.dirname, "peers", ...rest);
    }
    if (kind === "worker") {
      return path.join(required("MODEL_WORKER"), ...rest);
    }
    return path.join(required("DIST"), kind || "index.html", ...rest);
  }
}
