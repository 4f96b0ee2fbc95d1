//! Contract B as JavaScript calls it, in Chromium: what callers and stores of the host may hand over
//! that is not what the types say. The sentences of the contract are tested on the built package, in
//! `tests/browser`.
#![cfg(target_arch = "wasm32")]

use evidence_wasm::{
    EvidenceStore, ToolOutput, check_envelope, check_message, open_store, read_tool_name,
    read_tool_schema,
};
use js_sys::{Array, JSON, Object, Reflect};
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_browser);

#[wasm_bindgen(inline_js = r#"
const throwing = () => { throw new Error("thrown by the host's object"); };
const revoked = () => { const { proxy, revoke } = Proxy.revocable([], {}); revoke(); return proxy; };
const detached = () => {
  const bytes = new Uint8Array(8);
  structuredClone(bytes, { transfer: [bytes.buffer] });
  return bytes;
};
const lying = (length) => Object.defineProperty(new Uint8Array(8), "length", { value: length });
const disguised = (view) => Object.setPrototypeOf(view, Uint8Array.prototype);

// Values that are no text, no options, no result and no list.
const odd = () => [
  null, true, 0, -1, NaN, 2n ** 200n, Symbol("s"), () => {}, [[]], new Date(NaN), new String("text"),
  new Map(), new Uint8Array(3), detached(), Object.create(null), revoked(),
  new Proxy({}, { get: throwing, has: throwing, ownKeys: throwing, getPrototypeOf: throwing }),
  { toString: throwing, valueOf: throwing, toJSON: throwing, [Symbol.toPrimitive]: throwing },
];
export const hostile = () => [...odd(), []];

// Results that are none, with the code of the refusal.
export const badResults = () => {
  const good = { success: true, text: "t" };
  const circle = { ...good };
  circle.data = circle;
  let deep = 1;
  for (let level = 0; level < 100_000; level += 1) deep = [deep];
  const bad = [
    {}, { success: true }, { text: "t" }, { success: 1, text: "t" }, { success: true, text: 1 },
    { ...good, more: 1 }, circle, { ...good, data: deep }, { ...good, toJSON: throwing }, { ...good, toJSON: () => 1 },
    { ...good, get data() { return throwing(); } },
    ...[NaN, Infinity, -0, 1n, Symbol("s"), () => {}].flatMap((data) => [{ ...good, data }, { ...good, receipt: { a: [data] } }]),
    "", "{", "null", "[]", '{"success":true}', '{"success":true,"text":"t","text":"t"}',
    '{"success":true,"text":"t","data":01}', '{"success":true,"text":"t"} x',
  ].map((result) => [result, "invalid_argument"]);
  const lone = [
    { ...good, text: "\ud800" }, { ...good, data: ["\udc00"] }, { ...good, receipt: { "\ud800": 1 } },
    '{"success":true,"text":"\ud800"}', '{"success":true,"text":"\\ud800"}',
  ].map((result) => [result, "lone_surrogate"]);
  return [...bad, ...lone];
};

// Options of record and of read that are none.
export const badRecordOptions = () => [
  { toolCallId: "" }, { toolCallId: "a b" }, { toolCallId: null }, { toolCallId: 1 }, { toolCallId: "x".repeat(257) },
  { handles: null }, { handles: [] }, { handles: 1 }, { handles: { a: NaN } }, { handles: '{"a":1,"a":2}' },
  { handles: "[]" }, { handles: revoked() }, { get handles() { return throwing(); } },
];
export const badReadOptions = () => [
  { offset: -1 }, { offset: 0.5 }, { offset: "0" }, { offset: 2 ** 53 }, { limit: "1" }, { limit: NaN }, { limit: null },
  { limit: 1n }, { get limit() { return throwing(); } },
];

// Answers of a host's store that no store may give, by the function that gives them.
export const badGets = () => [
  ...hostile(), "text", new Array(9).fill(undefined), new Array(2 ** 32 - 1), { length: 2 },
  ...[...hostile().slice(1), "text", new Uint16Array(3), new DataView(new ArrayBuffer(3)),
    disguised(new DataView(new ArrayBuffer(3))), disguised(new BigUint64Array(1)), new Proxy(new Uint8Array(1), {}),
    lying(-1), lying(2 ** 32), lying(1), lying("8"), new Uint8Array(2 ** 26 + 1),
  ].map((item) => [item, item]),
];
export const badLists = () => [
  ...odd(), "text", undefined,
  [undefined], ["\ud800"], ["another/prefix"], [1], [new String("tool-output/s/j/job")], new Array(2 ** 32 - 1),
];
const thenables = () => [
  Promise.reject(), Promise.reject(new Error("no")), { then: throwing }, { get then() { return throwing(); } },
  { then: (_, reject) => reject(Symbol("s")) },
];

// A store that answers as it is told.
export const answering = (answers) => ({
  get: async (keys) => ("get" in answers ? answers.get : keys.map(() => undefined)),
  list: async () => ("list" in answers ? answers.list : []),
  commit: async () => ("commit" in answers ? answers.commit : undefined),
});
// Stores that fail in every way, with what contract B calls it.
export const failing = () => {
  const coded = (code) => () => { throw Object.assign(new Error("no"), { code }); };
  const all = (act) => ({ get: act, list: act, commit: act });
  return [
    [all(coded("conflict")), "conflict"], [all(coded("exhausted")), "storage_exhausted"],
    [all(coded("other")), "storage_unavailable"], [all(coded(1)), "storage_unavailable"],
    [all(throwing), "storage_unavailable"],
    [all(() => { throw null; }), "storage_unavailable"], [all(() => { throw "\ud800"; }), "storage_unavailable"],
    [all(() => { throw { get code() { throw 1; }, get message() { throw 1; } }; }), "storage_unavailable"],
    [all(() => { throw revoked(); }), "storage_unavailable"],
    [all(async () => { throw Object.assign(new Error("no"), { code: "conflict" }); }), "conflict"],
    ...thenables().map((answer) => [all(() => answer), "storage_unavailable"]),
  ];
};
export const badStores = () => [
  ...hostile(), undefined, { get: 1, list: () => {}, commit: () => {} }, { get: () => {}, list: () => {} },
  { get get() { return throwing(); }, list: () => {}, commit: () => {} },
];
"#)]
extern "C" {
    fn hostile() -> Array;
    #[wasm_bindgen(js_name = badResults)]
    fn bad_results() -> Array;
    #[wasm_bindgen(js_name = badRecordOptions)]
    fn bad_record_options() -> Array;
    #[wasm_bindgen(js_name = badReadOptions)]
    fn bad_read_options() -> Array;
    #[wasm_bindgen(js_name = badGets)]
    fn bad_gets() -> Array;
    #[wasm_bindgen(js_name = badLists)]
    fn bad_lists() -> Array;
    fn answering(answers: &JsValue) -> JsValue;
    fn failing() -> Array;
    #[wasm_bindgen(js_name = badStores)]
    fn bad_stores() -> Array;
}

fn json(text: &str) -> JsValue {
    JSON::parse(text).unwrap()
}

fn field(object: &JsValue, name: &str) -> JsValue {
    Reflect::get(object, &name.into()).unwrap()
}

fn object(name: &str, value: &JsValue) -> JsValue {
    let object = Object::new();
    Reflect::set(&object, &name.into(), value).unwrap();
    object.into()
}

/// The code that JavaScript sees.
fn code<T>(answer: Result<T, impl Into<JsValue>>) -> String {
    match answer {
        Ok(_) => "none".to_owned(),
        Err(failure) => {
            let error: JsValue = failure.into();
            assert_eq!(field(&error, "name"), "EvidenceError");
            field(&error, "code").as_string().unwrap()
        }
    }
}

async fn memory() -> EvidenceStore {
    open_store(json(r#"{"kind":"memory"}"#)).await.unwrap()
}

/// The store of the host that `store` is.
async fn host(store: &JsValue) -> Result<EvidenceStore, String> {
    let options = object("store", store);
    Reflect::set(&options, &"kind".into(), &"custom".into()).unwrap();
    open_store(options)
        .await
        .map_err(|failure| code::<()>(Err(failure)))
}

async fn with_job(store: &EvidenceStore) -> ToolOutput {
    let output = store.tool_output("s".into()).unwrap();
    output.create_job("j".into()).await.unwrap();
    output
}

async fn is_usable(output: &ToolOutput) {
    let result = json(r#"{"success":true,"text":"still here"}"#);
    let recorded = output.record("j".into(), result, JsValue::UNDEFINED).await;
    assert_eq!(
        field(&recorded.unwrap(), "result"),
        r#"{"success":true,"text":"still here","data":null,"receipt":null}"#
    );
}

fn good_result() -> JsValue {
    r#"{"success":true,"text":"t"}"#.into()
}

fn sha256() -> JsValue {
    "0".repeat(64).into()
}

#[wasm_bindgen_test]
async fn hostile_arguments_are_refused_and_the_tool_output_stays_usable() {
    const NONE: JsValue = JsValue::UNDEFINED;
    let store = memory().await;
    let output = with_job(&store).await;
    let values = hostile();
    for bad in [&NONE, &"".into(), &"a/b".into(), &"\u{e9}".into()] {
        values.push(bad);
    }
    for value in values.iter() {
        let v = || value.clone();
        let mut codes = vec![
            code(store.tool_output(v())),
            code(output.create_job(v()).await),
            code(output.job(v()).await),
            code(output.set_status(v(), "active".into()).await),
            code(output.set_status("j".into(), v()).await),
            code(output.delete_job(v()).await),
            code(output.record(v(), good_result(), NONE).await),
            code(output.record("j".into(), v(), NONE).await),
            code(output.read(v(), sha256(), NONE).await),
            code(output.read("j".into(), v(), NONE).await),
            code(output.read_whole(v(), sha256()).await),
            code(output.read_whole("j".into(), v()).await),
            code(output.artifacts(v()).await),
            code(output.read_tool(v(), "{}".into()).await),
            code(output.run_agent(v(), Object::new().into()).await),
            code(output.run_agent("j".into(), v()).await),
        ];
        if !value.is_string() {
            codes.push(code(output.read_tool("j".into(), v()).await));
            codes.push(code(check_envelope(v(), NONE)));
            codes.push(code(check_message(v())));
        }
        if !value.is_undefined() {
            codes.push(code(check_envelope("".into(), v())));
            let limit = object("maxInputBytes", &value);
            codes.push(code(output.run_agent("j".into(), limit).await));
        }
        let is_object = value.is_object() || value.is_function();
        if !is_object && !value.is_undefined() {
            codes.push(code(output.record("j".into(), good_result(), v()).await));
            codes.push(code(output.read("j".into(), sha256(), v()).await));
        }
        for (index, code) in codes.iter().enumerate() {
            assert_eq!(code, "invalid_argument", "{index}: {value:?}");
        }
        is_usable(&output).await;
    }
    for options in bad_record_options().iter() {
        let refused = output.record("j".into(), good_result(), options.clone());
        assert_eq!(code(refused.await), "invalid_argument", "{options:?}");
    }
    for options in bad_read_options().iter() {
        let refused = output.read("j".into(), sha256(), options.clone());
        assert_eq!(code(refused.await), "invalid_argument", "{options:?}");
    }
    for limit in [0.0, -1.0, 8_388_609.0, 0.5] {
        let refused = check_envelope("".into(), limit.into());
        assert_eq!(code(refused), "invalid_argument");
    }
    for arguments in ["", "{}", "[]", r#"{"sha256":"x","offset":0,"limit":1}"#] {
        let refused = output.read_tool("j".into(), arguments.into()).await;
        assert_eq!(code(refused), "invalid_request", "{arguments}");
    }
    is_usable(&output).await;
}

#[wasm_bindgen_test]
async fn what_is_no_tool_result_is_refused() {
    let output = with_job(&memory().await).await;
    for case in bad_results().iter() {
        let case: Array = case.unchecked_into();
        let refused = output.record("j".into(), case.get(0), JsValue::UNDEFINED);
        assert_eq!(case.get(1), JsValue::from(code(refused.await)), "{case:?}");
    }
    is_usable(&output).await;
}

/// The codes of everything that uses what the store beneath answers. A deletion does not: it takes
/// damaged values away as well.
async fn codes_of(store: &EvidenceStore) -> Vec<String> {
    const NONE: JsValue = JsValue::UNDEFINED;
    let output = store.tool_output("s".into()).unwrap();
    let artifacts = store.artifacts("s".into()).unwrap();
    vec![
        code(output.create_job("j".into()).await),
        code(output.job("j".into()).await),
        code(output.set_status("j".into(), "completed".into()).await),
        code(output.record("j".into(), good_result(), NONE).await),
        code(output.read("j".into(), sha256(), NONE).await),
        code(output.read_whole("j".into(), sha256()).await),
        code(artifacts.put("text".into()).await),
        code(
            artifacts
                .read(format!("artifact-{}", "0".repeat(64)).into())
                .await,
        ),
    ]
}

#[wasm_bindgen_test]
async fn answers_that_no_store_may_give_are_damage_and_never_used() {
    // Some of the values cannot even be what a promise resolves to: the store has failed then.
    let never_used = |code: &str| {
        [
            "integrity_failure",
            "storage_damaged",
            "storage_unavailable",
        ]
        .contains(&code)
    };
    for (index, answer) in bad_gets().iter().enumerate() {
        let store = host(&answering(&object("get", &answer))).await.unwrap();
        for code in codes_of(&store).await {
            assert!(never_used(&code), "get {index}: {code}");
        }
    }
    for (index, answer) in bad_lists().iter().enumerate() {
        let store = host(&answering(&object("list", &answer))).await.unwrap();
        let output = store.tool_output("s".into()).unwrap();
        let artifacts = store.artifacts("s".into()).unwrap();
        for code in [
            code(output.jobs().await),
            code(output.artifacts("j".into()).await),
            code(artifacts.list().await),
        ] {
            assert!(never_used(&code), "list {index}: {code}");
        }
    }
    // What a commit answers says nothing.
    for answer in hostile().iter() {
        let store = host(&answering(&object("commit", &answer))).await.unwrap();
        let output = store.tool_output("s".into()).unwrap();
        let created = code(output.create_job("j".into()).await);
        assert!(
            created == "none" || created == "storage_unavailable",
            "{created}"
        );
    }
}

#[wasm_bindgen_test]
async fn what_a_store_of_the_host_throws_is_a_code() {
    for case in failing().iter() {
        let case: Array = case.unchecked_into();
        let store = host(&case.get(0)).await.unwrap();
        let expected = case.get(1).as_string().unwrap();
        let output = store.tool_output("s".into()).unwrap();
        for refused in [
            code(output.create_job("j".into()).await),
            code(output.jobs().await),
            code(output.read("j".into(), sha256(), JsValue::UNDEFINED).await),
        ] {
            assert_eq!(refused, expected, "{case:?}");
        }
        let artifacts = store.artifacts("s".into()).unwrap();
        let expected = expected.replace("conflict", "storage_conflict");
        assert_eq!(code(artifacts.list().await), expected, "{case:?}");
    }
    for store in bad_stores().iter() {
        let refused = host(&store).await.unwrap_err();
        assert_eq!(refused, "invalid_argument", "{store:?}");
    }
}

#[wasm_bindgen_test]
fn the_tools_name_and_schema_are_the_contracts() {
    let schema = json(&read_tool_schema());
    assert_eq!(field(&schema, "name"), read_tool_name().as_str());
    assert_eq!(read_tool_name(), "akh_read_tool_output");
    let required = field(&field(&schema, "parameters"), "required");
    assert_eq!(Array::from(&required).join(","), "sha256,offset,limit");
}

#[wasm_bindgen_test]
fn the_final_escaped_message_is_checked_against_64_kib_and_a_body_against_8_mib() {
    let check = |check: Result<JsValue, _>| {
        let check = check.map_err(|failure| code::<()>(Err(failure))).unwrap();
        JSON::stringify(&check).unwrap()
    };
    let message = "é".repeat(32_768);
    assert_eq!(
        check(check_message(message.as_str().into())),
        r#"{"fits":true,"bytes":65536,"limit":65536}"#
    );
    assert_eq!(
        check(check_message((message + "x").into())),
        r#"{"fits":false,"bytes":65537,"limit":65536}"#
    );
    assert_eq!(
        check(check_envelope(
            "x".repeat(8_388_609).into(),
            JsValue::UNDEFINED
        )),
        r#"{"fits":false,"bytes":8388609,"limit":8388608}"#
    );
    assert_eq!(
        check(check_envelope("\u{1F642}".into(), 4.into())),
        r#"{"fits":true,"bytes":4,"limit":4}"#
    );
}
