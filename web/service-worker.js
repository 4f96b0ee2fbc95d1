// The page's service worker. It answers the endpoint of contract B below the page's own path
// (<path>v1/…) from the page's database, and keeps the page's files so that it works offline.
//
// It is a classic script, because not every browser runs modules here. `files.js` is written by the
// build: the names of the page's files, and a version that changes with any of their bytes, by which a
// browser notices a new build.

importScripts("files.js", "evidence-service-worker.js");

/** The path of the page: "/" or "/some/project/". */
const PATH = new URL(self.registration.scope).pathname;
/** Other pages of this origin have caches, too. */
const OURS = `bounded-evidence ${PATH} `;
const CACHE = OURS + FILES.version;

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

/** All files of this build, or none: a build that is half there is not installed. */
async function install() {
  const cache = await caches.open(CACHE);
  await cache.addAll(FILES.names.map((name) => new Request(name, { cache: "no-cache" })));
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
    try {
      return await fetch(request);
    } catch (error) {
      const kept = path === "" ? await cache.match("index.html") : await cache.match(request);
      if (kept) {
        return kept;
      }
      throw error;
    }
  }
  const kept = (await cache.match(request)) ?? (await caches.match(request));
  if (kept) {
    return kept;
  }
  const response = await fetch(request);
  // Samples are many; each is kept when it was looked at.
  if (response.ok && path.startsWith("samples/")) {
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
    // An instance that has failed once can fail for ever.
    started = undefined;
    return problem("the page's worker failed; try again, or reload the page");
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
