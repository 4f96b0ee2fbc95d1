// The page's service worker. It answers the endpoint of contract B below the page's own path
// (<path>v1/…) from the page's database, and keeps the page's files so that it works offline.
//
// It is a classic script, because not every browser runs modules here. `files.js` is written by the
// build: the page's files with their digests, and a version that changes with any byte, by which a
// browser notices a new build.

importScripts("files.js", "evidence-service-worker.js");

/** The path of the page: "/" or "/some/project/". */
const PATH = new URL(self.registration.scope).pathname;
/** Other pages of this origin have caches, too. */
const OURS = `bounded-evidence ${PATH} `;
const CACHE = OURS + FILES.version;
/** How long a host may take to answer with a page that is kept, in milliseconds. */
const PATIENCE_MS = 4000;

self.addEventListener("install", (event) => event.waitUntil(install()));
self.addEventListener("activate", (event) => event.waitUntil(activate()));
self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (url.origin !== self.location.origin || !url.pathname.startsWith(PATH)) {
    return;
  }
  const path = url.pathname.slice(PATH.length);
  if (path.startsWith("v1/")) {
    event.respondWith(answer(event.request, `/${path}${url.search}`));
  } else if (event.request.method === "GET") {
    event.respondWith(file(event.request, path));
  }
});

/**
 * All files of this build, or none. While a host takes up a new build some are of the one and some of
 * the other: such a mix is not installed, and the browser tries again later.
 */
async function install() {
  const cache = await caches.open(CACHE);
  const keep = async ([name, sha256]) => {
    const response = await fetch(name, { cache: "no-cache" });
    const digest = await crypto.subtle.digest("SHA-256", await response.clone().arrayBuffer());
    const digits = Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0"));
    if (!response.ok || digits.join("") !== sha256) {
      throw new Error(`${name} is not of this build`);
    }
    await cache.put(name, response);
  };
  await Promise.all(Object.entries(FILES.sha256).map(keep));
  await self.skipWaiting();
}

/** A tab may still be loading the files of the build before, so that one of those is kept. */
async function activate() {
  const before = (await caches.keys()).filter((name) => name.startsWith(OURS) && name !== CACHE);
  await Promise.all(before.slice(0, -1).map((name) => caches.delete(name)));
  await self.clients.claim();
}

/**
 * The page itself comes from the host when that can be reached, so that a new build is seen at once.
 * Everything else that belongs to a build has its digest in its name or its build's cache.
 */
async function file(request, path) {
  const cache = await caches.open(CACHE);
  if (request.mode === "navigate") {
    const kept = await (path === "" ? cache.match("index.html") : cache.match(request));
    const fresh = fetch(request);
    if (!kept) {
      return fresh;
    }
    // A network that is there and answers nothing is as good as none.
    const patience = new Promise((resolve) => setTimeout(resolve, PATIENCE_MS, kept));
    return Promise.race([fresh, patience]).catch(() => kept);
  }
  // The program that runs models has no digest in its name: another build's is no use.
  const isModelWorker = path.startsWith("evidence-model-worker/");
  const kept = (await cache.match(request)) ?? (isModelWorker ? undefined : await caches.match(request));
  if (kept) {
    return kept;
  }
  const response = await fetch(request, isModelWorker ? { cache: "no-cache" } : {});
  // Samples are many, and not everybody runs a model; what was used once is kept.
  if (response.ok && (isModelWorker || path.startsWith("samples/"))) {
    await cache.put(request, response.clone());
  }
  return response;
}

let started;

/** The WebAssembly, of the same build as this script. */
async function start() {
  const name = "evidence-service-worker_bg.wasm";
  const cache = await caches.open(CACHE);
  await wasm_bindgen({ module_or_path: (await cache.match(name)) ?? fetch(name) });
}

async function answer(request, target) {
  started ??= start();
  try {
    await started;
  } catch {
    started = undefined;
    return problem("the page's worker could not start; reload the page");
  }
  try {
    // A form of another site can navigate here and send something. It cannot read what it gets, so
    // that reading by navigation, which is opening an address, is fine.
    if (request.mode === "navigate" && request.method !== "GET") {
      return response(wasm_bindgen.refuse());
    }
    const body = new Uint8Array(await request.arrayBuffer());
    const toolCallId = request.headers.get("tool-call-id") ?? undefined;
    return response(
      await wasm_bindgen.respond(request.method, target, toolCallId, body, crypto.randomUUID()),
    );
  } catch {
    return problem("the page's worker failed; close all tabs of this page and open it again");
  }
}

function response({ status, headers, body }) {
  return new Response(body, { status, headers });
}

function problem(detail) {
  const title = "Service Unavailable";
  const code = "storage_unavailable";
  return new Response(JSON.stringify({ type: "about:blank", title, status: 503, code, detail }), {
    status: 503,
    headers: { "content-type": "application/problem+json", "cache-control": "no-store" },
  });
}
