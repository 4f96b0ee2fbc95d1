//! The library as JavaScript calls it, in Chromium. What only the built package shows (its classes,
//! its types, other tabs, a full disk) is tested in `tests/browser`.
#![cfg(target_arch = "wasm32")]

use evidence_wasm::{Artifacts, EvidenceStore, is_artifact_path, open_store};
use js_sys::{Array, JSON, Reflect, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_browser);

#[wasm_bindgen(inline_js = r#"
const throwing = () => { throw new Error("thrown by the caller's object"); };
const revoked = () => { const { proxy, revoke } = Proxy.revocable([], {}); revoke(); return proxy; };

// Values that are no string, no limits and no options.
export const hostile = () => [
  null, true, 0, -1, NaN, Infinity, 1e308, 2n ** 200n, Symbol("s"), () => {}, [], [[]], new Date(NaN),
  new String("text"), /x/, new Map(), new Uint8Array(3), Object.create(null), revoked(),
  new Proxy({}, { get: throwing, has: throwing, ownKeys: throwing, getPrototypeOf: throwing }),
  Object.defineProperty({}, "kind", { get: throwing }),
  { toString: throwing, valueOf: throwing, [Symbol.toPrimitive]: throwing },
];
export const loneSurrogates = () => ["\ud800", "a\udc00b", "\ud83d \ude42", "\udc00\ud800"];

// Options of runAgent in which one thing is wrong, with the code of the refusal.
export const badOptions = () => {
  const good = { task: "t", generate: () => '{"final":"f"}' };
  const bad = [
    { task: undefined }, { task: 1 }, { generate: undefined }, { generate: "f" }, { generate: {} },
    { files: null }, { files: "f" }, { files: { a: 1 } }, { files: { a: new Uint16Array(1) } },
    { files: { a: new Proxy(new Uint8Array(1), {}) } }, { files: revoked() },
    { files: { a: Object.setPrototypeOf(new DataView(new ArrayBuffer(1)), Uint8Array.prototype) } },
    { files: { get a() { return throwing(); } } },
    { limits: null }, { limits: { maxInlineBytes: 511 } }, { limits: { previewBytes: NaN } },
    { limits: { maxRangeBytes: "4" } }, { limits: { maxInlineBytes: 1e300 } },
    { agentLimits: 1 }, { agentLimits: { maxSteps: 0 } }, { agentLimits: { maxSteps: 0.5 } },
    { agentLimits: { maxContextChars: -1 } }, { agentLimits: { maxIdenticalActions: 2n } },
    { policy: null }, { policy: { allowWrites: 1 } }, { policy: { allowedCommands: "ls" } },
    { policy: { allowedCommands: [["ls", 1]] } }, { policy: { allowedCommands: [{ length: 1 }] } },
    { policy: { allowedCommands: new Array(2 ** 32 - 1) } }, { policy: { allowedCommands: revoked() } },
    { policy: { maxFileBytes: -1 } }, { policy: { maxListEntries: null } },
    { approve: true }, { commands: null }, { commands: { ls: "ls" } }, { onEvent: {} },
    { signal: {} }, { signal: null }, { signal: new EventTarget() },
    { signal: new Proxy(new AbortController().signal, {}) },
    { signal: Object.create(AbortSignal.prototype) },
  ].map((wrong) => [{ ...good, ...wrong }, "invalid_argument"]);
  const lone = [
    { task: "\ud800" }, { files: { "\ud800": "" } }, { files: { a: "\ud800" } },
    { policy: { allowedCommands: [["ls", "\ud800"]] } }, { commands: { "\ud800": () => {} } },
  ].map((wrong) => [{ ...good, ...wrong }, "lone_surrogate"]);
  return [...bad, ...lone, [undefined, "invalid_argument"], [null, "invalid_argument"], [{}, "invalid_argument"]];
};

// A run in which every callback misbehaves once; the replies say what is to happen.
export const misbehavingRun = () => {
  const actions = [
    { tool: "run_command", argv: ["throws"] },
    { tool: "run_command", argv: ["missing"] },
    { tool: "run_command", argv: ["surrogate"] },
    { tool: "run_command", argv: ["number"] },
    { tool: "run_command", argv: ["exit"] },
    { tool: "run_command", argv: ["good"] },
    { tool: "write_file", path: "denied", content: "" },
    { tool: "write_file", path: "throws", content: "" },
    { tool: "write_file", path: "odd", content: "" },
    { tool: "write_file", path: "later", content: "é" },
    { final: "done" },
  ];
  const names = ["throws", "missing", "surrogate", "number", "exit", "good"];
  return {
    task: "t",
    agentLimits: { maxSteps: 20 },
    policy: { allowWrites: true, allowedCommands: names.map((name) => [name]) },
    generate: async () => JSON.stringify(actions.shift()),
    commands: {
      throws: () => { throw new Error("boom"); },
      surrogate: () => ({ exitCode: 0, stdout: "\ud800" }),
      number: async () => 1,
      exit: () => ({ exitCode: 2 ** 40 }),
      good: ({ argv }) => ({ exitCode: null, stdout: argv[0], stderr: new Uint8Array([0xc3, 0xa9]) }),
    },
    approve: ({ tool, arguments: { path } }) =>
      tool === "run_command" ? true
      : path === "denied" ? "not today"
      : path === "throws" ? throwing()
      : path === "odd" ? 1
      : { then: (resolve) => setTimeout(resolve, 1, true) },
  };
};
export const badGenerators = () => [
  () => 1, () => undefined, () => throwing(), () => Promise.reject("no"), () => Promise.reject(undefined),
  () => "\ud800", () => { throw { get message() { throw 1; } }; }, () => { throw new Error("\ud800"); },
  () => ({ get then() { throw new Error("then"); } }),
  () => Object.defineProperty(Promise.resolve("x"), "constructor", { get: throwing }),
].map((generate) => ({ task: "t", generate }));
"#)]
extern "C" {
    fn hostile() -> Array;
    #[wasm_bindgen(js_name = loneSurrogates)]
    fn lone_surrogates() -> Array;
    #[wasm_bindgen(js_name = badOptions)]
    fn bad_options() -> Array;
    #[wasm_bindgen(js_name = misbehavingRun)]
    fn misbehaving_run() -> JsValue;
    #[wasm_bindgen(js_name = badGenerators)]
    fn bad_generators() -> Array;
}

fn json(text: &str) -> JsValue {
    JSON::parse(text).unwrap()
}

fn field(object: &JsValue, name: &str) -> JsValue {
    Reflect::get(object, &name.into()).unwrap()
}

fn text(object: &JsValue, name: &str) -> String {
    field(object, name).as_string().unwrap()
}

async fn memory() -> EvidenceStore {
    open_store(json(r#"{"kind":"memory"}"#)).await.unwrap()
}

async fn artifacts() -> Artifacts {
    memory().await.artifacts("test".into()).unwrap()
}

/// The code that JavaScript sees.
fn code<T>(answer: Result<T, impl Into<JsValue>>) -> String {
    match answer {
        Ok(_) => panic!("was not refused"),
        Err(failure) => {
            let error: JsValue = failure.into();
            assert!(error.is_instance_of::<js_sys::Error>());
            assert_eq!(text(&error, "name"), "EvidenceError");
            assert!(!text(&error, "message").is_empty());
            text(&error, "code")
        }
    }
}

async fn is_usable(artifacts: &Artifacts) {
    let descriptor = artifacts.put("still here".into()).await.unwrap();
    let bytes = artifacts.read(field(&descriptor, "artifactId")).await;
    assert_eq!(bytes.unwrap().to_vec(), b"still here");
}

/// Every function that takes text, given `value`.
async fn codes_of_text(
    store: &EvidenceStore,
    artifacts: &Artifacts,
    value: &JsValue,
) -> [String; 9] {
    let value = || value.clone();
    [
        code(open_store(value()).await),
        code(store.artifacts(value())),
        code(is_artifact_path(value())),
        code(artifacts.put(value()).await),
        code(artifacts.describe(value()).await),
        code(artifacts.read(value()).await),
        code(artifacts.delete(value()).await),
        code(artifacts.bound(value(), JsValue::UNDEFINED).await),
        code(artifacts.read_range(value(), JsValue::UNDEFINED).await),
    ]
}

#[wasm_bindgen_test]
async fn hostile_arguments_are_refused_and_the_store_stays_usable() {
    let store = memory().await;
    let artifacts = store.artifacts("test".into()).unwrap();
    let values = hostile();
    values.push(&JsValue::UNDEFINED);
    for value in values.iter() {
        for code in codes_of_text(&store, &artifacts, &value).await {
            assert_eq!(code, "invalid_argument", "{value:?}");
        }
        // Each as the whole of the limits, and as each of them.
        for name in ["maxInlineBytes", "previewBytes", "maxRangeBytes"] {
            let limits = js_sys::Object::new();
            Reflect::set(&limits, &name.into(), &value).unwrap();
            if !value.is_undefined() {
                let bounded = artifacts.bound("x".into(), limits.into()).await;
                assert_eq!(code(bounded), "invalid_argument", "{name}: {value:?}");
            }
        }
        if !value.is_object() && !value.is_function() && !value.is_undefined() {
            let range = artifacts.read_range("x".into(), value.clone()).await;
            assert_eq!(code(range), "invalid_argument", "{value:?}");
        }
        is_usable(&artifacts).await;
    }
    for scope in ["", "a/b", "é", &"x".repeat(129)] {
        assert_eq!(code(store.artifacts(scope.into())), "invalid_argument");
    }
    for id in [
        "",
        "artifact-",
        "../x",
        &format!("artifact-{}", "A".repeat(64)),
    ] {
        assert_eq!(code(artifacts.read(id.into()).await), "invalid_argument");
    }
    assert_eq!(
        code(open_store(json(r#"{"kind":"disk"}"#)).await),
        "invalid_argument"
    );
    let unnamed = json(r#"{"kind":"indexeddb","name":null}"#);
    assert_eq!(code(open_store(unnamed).await), "invalid_argument");
}

#[wasm_bindgen_test]
async fn lone_surrogates_are_refused_not_replaced() {
    let store = memory().await;
    let artifacts = store.artifacts("test".into()).unwrap();
    for value in lone_surrogates().iter() {
        let codes = codes_of_text(&store, &artifacts, &value).await;
        // The first takes options and not text.
        for code in &codes[1..] {
            assert_eq!(code, "lone_surrogate");
        }
        let kind = js_sys::Object::new();
        Reflect::set(&kind, &"kind".into(), &value).unwrap();
        assert_eq!(code(open_store(kind.into()).await), "lone_surrogate");
    }
    assert_eq!(artifacts.list().await.unwrap().length(), 0);
    // Pairs are no lone surrogates.
    let descriptor = artifacts.put("🙂".into()).await.unwrap();
    assert_eq!(field(&descriptor, "byteCount"), 4);
}

#[wasm_bindgen_test]
async fn the_ranges_of_a_bounded_result_give_it_back() {
    let artifacts = artifacts().await;
    let whole = "é漢🙂\n".repeat(400);
    let bounded = artifacts
        .bound(whole.as_str().into(), JsValue::UNDEFINED)
        .await
        .unwrap();
    assert_eq!(field(&bounded, "externalized"), true);
    let (header, observation) = text(&bounded, "text")
        .split_once('\n')
        .map(|(header, rest)| (header.to_owned(), json(rest)))
        .unwrap();
    assert_eq!(header, "Tool result externalized:");
    let descriptor = field(&bounded, "descriptor");
    let id = text(&descriptor, "artifactId");
    assert_eq!(text(&observation, "artifact_id"), id);
    assert_eq!(id, format!("artifact-{}", text(&descriptor, "sha256")));

    let mut read = String::new();
    while read.len() < whole.len() {
        let end = whole.floor_char_boundary(read.len() + 512);
        let path = format!(".tool-artifacts/{id}/bytes/{}-{end}", read.len());
        assert_eq!(is_artifact_path(path.as_str().into()).ok(), Some(true));
        let range = artifacts
            .read_range(path.as_str().into(), JsValue::UNDEFINED)
            .await
            .unwrap();
        assert_eq!(field(&range, "ok"), true);
        let answer = text(&range, "text");
        read += &text(&json(answer.split_once('\n').unwrap().1), "data");
    }
    assert_eq!(read, whole);

    let path = format!(".tool-artifacts/{id}/bytes/0-1");
    let range = artifacts
        .read_range(path.as_str().into(), JsValue::UNDEFINED)
        .await
        .unwrap();
    assert_eq!(field(&range, "ok"), false);
    assert_eq!(
        text(&range, "text"),
        "error: artifact range does not align to UTF-8 text"
    );

    let small = artifacts
        .bound("small".into(), JsValue::UNDEFINED)
        .await
        .unwrap();
    assert_eq!(
        JSON::stringify(&small).unwrap(),
        r#"{"externalized":false,"text":"small"}"#
    );
}

#[wasm_bindgen_test]
async fn artifacts_are_described_listed_and_deleted() {
    let store = open_store(json(r#"{"kind":"indexeddb","name":"library"}"#))
        .await
        .unwrap();
    let artifacts = store.artifacts("a".into()).unwrap();
    artifacts.delete_all().await.unwrap();
    let one = field(&artifacts.put("one".into()).await.unwrap(), "artifactId");
    let two = field(&artifacts.put("two".into()).await.unwrap(), "artifactId");
    assert_eq!(artifacts.list().await.unwrap().length(), 2);
    assert_eq!(
        field(&artifacts.describe(one.clone()).await.unwrap(), "byteCount"),
        3
    );
    let other = store.artifacts("b".into()).unwrap();
    assert_eq!(code(other.read(one.clone()).await), "artifact_unknown");

    artifacts.delete(one.clone()).await.unwrap();
    artifacts.delete(one.clone()).await.unwrap();
    assert_eq!(code(artifacts.describe(one).await), "artifact_unknown");
    let bytes: Uint8Array = artifacts.read(two).await.unwrap();
    assert_eq!(bytes.to_vec(), b"two");
    artifacts.delete_all().await.unwrap();
    assert_eq!(artifacts.list().await.unwrap().length(), 0);
}

#[wasm_bindgen_test]
async fn bad_options_of_a_run_are_refused() {
    let artifacts = artifacts().await;
    for case in bad_options().iter() {
        let case: Array = case.unchecked_into();
        let refused = code(artifacts.run_agent(case.get(0)).await);
        assert_eq!(case.get(1), JsValue::from(refused), "{:?}", case.get(0));
    }
    is_usable(&artifacts).await;
}

#[wasm_bindgen_test]
async fn a_run_survives_callbacks_that_misbehave() {
    let outcome = artifacts()
        .await
        .run_agent(misbehaving_run())
        .await
        .unwrap();
    let results: Vec<Option<String>> = field(&outcome, "events")
        .unchecked_into::<Array>()
        .iter()
        .map(|event| field(&event, "result").as_string())
        .collect();
    let expected = [
        "error: command throws failed: boom",
        "error: this workspace does not have the command",
        "error: the answer of command surrogate.stdout contains a lone surrogate and has no exact \
         UTF-8 bytes; remove it, or pass what toWellFormed() makes of the string",
        "error: the answer of command number must be an object",
        "error: the answer of command exit.exitCode must be a 32-bit integer",
        "exit code: killed by a signal\nstdout:\ngood\nstderr:\né",
        "error: operator denied the tool action: not today",
        "error: operator denied the tool action: approve failed: thrown by the caller's object",
        "error: operator denied the tool action: the answer of approve must be true or false",
        "wrote later",
    ];
    let (last, results) = results.split_last().unwrap();
    assert_eq!(results, expected.map(|line| Some(line.to_owned())));
    assert_eq!(*last, None);
    assert_eq!(field(&outcome, "completed"), true);
    assert_eq!(text(&outcome, "final"), "done");
    assert_eq!(
        JSON::stringify(&field(&outcome, "changedFiles")).unwrap(),
        r#"{"later":"é"}"#
    );
}

#[wasm_bindgen_test]
async fn a_generator_that_fails_ends_the_run_with_a_sentence() {
    let artifacts = artifacts().await;
    for options in bad_generators().iter() {
        let outcome = artifacts.run_agent(options).await.unwrap();
        assert_eq!(text(&outcome, "reason"), "generator_failed");
        assert!(
            text(&outcome, "error").contains("generate"),
            "{}",
            text(&outcome, "error")
        );
        is_usable(&artifacts).await;
    }
}
