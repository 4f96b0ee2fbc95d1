//! Calls of the component by name, with arguments and answers as JSON.
//!
//! Records are objects, with the names that the interface has; variants are `{"tag","val"}`; lists of bytes
//! are their text; a long text is `{"before","repeat":[text, times],"after"}`.

use evidence_core::Sha256Digest;
use serde_json::{Map, Value, json};
use wasmtime::component::{Func, Instance, Type, Val};
use wasmtime::{Engine, Store};

use crate::host::{Blobs, component, instantiate};

/// An instance whose functions are called by name.
pub struct Dynamic {
    pub store: Store<Blobs>,
    instance: Instance,
}

impl Dynamic {
    pub fn new(blobs: Blobs) -> Self {
        let (store, instance) = instantiate(blobs);
        Self { store, instance }
    }

    fn function(&mut self, name: &str) -> Func {
        let (interface, function) = name.split_once('.').expect("an interface and a function");
        let version = env!("CARGO_PKG_VERSION");
        let interface = format!("bounded-evidence:evidence/{interface}@{version}");
        let index = self
            .instance
            .get_export_index(&mut self.store, None, &interface);
        let index =
            self.instance
                .get_export_index(&mut self.store, Some(&index.unwrap()), function);
        self.instance
            .get_func(&mut self.store, index.unwrap())
            .unwrap()
    }

    /// What the function `interface.function` answers; an error is a trap.
    pub fn call(&mut self, name: &str, arguments: &[Value]) -> wasmtime::Result<Value> {
        let function = self.function(name);
        let ty = function.ty(&self.store);
        let arguments: Vec<Val> = ty
            .params()
            .zip(arguments)
            .map(|((_, ty), value)| to_val(&ty, value))
            .collect();
        Ok(to_json(&self.call_values(name, &arguments)?))
    }

    /// The same with values of the interface's own types.
    pub fn call_values(&mut self, name: &str, arguments: &[Val]) -> wasmtime::Result<Val> {
        let function = self.function(name);
        let mut results = [Val::Bool(false)];
        function.call(&mut self.store, arguments, &mut results)?;
        let [result] = results;
        Ok(result)
    }
}

/// The names and types of all functions that the component exports.
pub fn functions() -> Vec<(String, Vec<Type>)> {
    use wasmtime::component::types::ComponentItem;
    let engine: &Engine = component().engine();
    let mut functions = Vec::new();
    for (interface, item) in component().component_type().exports(engine) {
        let ComponentItem::ComponentInstance(instance) = item.ty else {
            continue;
        };
        let short = interface.split(['/', '@']).nth(1).unwrap();
        for (name, item) in instance.exports(engine) {
            if let ComponentItem::ComponentFunc(function) = item.ty {
                let types = function.params().map(|(_, ty)| ty).collect();
                functions.push((format!("{short}.{name}"), types));
            }
        }
    }
    functions
}

fn to_val(ty: &Type, value: &Value) -> Val {
    let number = || value.as_u64().expect("a number");
    match ty {
        Type::Bool => Val::Bool(value.as_bool().expect("a truth value")),
        Type::U64 => Val::U64(number()),
        Type::S64 => Val::S64(value.as_i64().expect("a number")),
        Type::String => Val::String(text(value)),
        Type::List(list) if list.ty() == Type::U8 => {
            Val::List(text(value).bytes().map(Val::U8).collect())
        }
        Type::List(list) => {
            let items = value.as_array().expect("a list").iter();
            Val::List(items.map(|item| to_val(&list.ty(), item)).collect())
        }
        Type::Record(record) => Val::Record(
            record
                .fields()
                .map(|field| (field.name.to_owned(), to_val(&field.ty, &value[field.name])))
                .collect(),
        ),
        Type::Option(option) => {
            Val::Option((!value.is_null()).then(|| Box::new(to_val(&option.ty(), value))))
        }
        Type::Enum(_) => Val::Enum(text(value)),
        Type::Variant(variant) => {
            let tag = value["tag"].as_str().expect("a tag");
            let mut cases = variant.cases();
            let case = cases.find(|case| case.name == tag).expect("a case");
            let payload = case.ty.map(|ty| Box::new(to_val(&ty, &value["val"])));
            Val::Variant(tag.to_owned(), payload)
        }
        ty => unreachable!("no parameter has the type {ty:?}"),
    }
}

/// A text, or `{"before","repeat":[text, times],"after"}`.
pub fn text(value: &Value) -> String {
    let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if value.is_string() {
        return part(value);
    }
    let [repeated, times] = [&value["repeat"][0], &value["repeat"][1]];
    let times = times.as_u64().and_then(|times| usize::try_from(times).ok());
    let repeated = part(repeated).repeat(times.expect("how often"));
    part(&value["before"]) + &repeated + &part(&value["after"])
}

fn to_json(value: &Val) -> Value {
    let optional = |value: &Option<Box<Val>>| value.as_deref().map_or(Value::Null, to_json);
    match value {
        Val::Bool(value) => json!(value),
        Val::U64(value) => json!(value),
        Val::S64(value) => json!(value),
        Val::String(value) | Val::Enum(value) => json!(value),
        Val::List(items) if matches!(items.first(), Some(Val::U8(_))) => {
            let bytes = items.iter().map(|item| match item {
                Val::U8(byte) => *byte,
                _ => unreachable!("a list has one type"),
            });
            json!(String::from_utf8(bytes.collect()).expect("the tests store text"))
        }
        Val::List(items) | Val::Tuple(items) => items.iter().map(to_json).collect(),
        Val::Record(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| (name.clone(), to_json(value)))
                .collect::<Map<_, _>>(),
        ),
        Val::Option(value) => optional(value),
        Val::Variant(tag, None) => json!({ "tag": tag }),
        Val::Variant(tag, value) => json!({ "tag": tag, "val": optional(value) }),
        Val::Result(Ok(value)) => json!({ "ok": optional(value) }),
        Val::Result(Err(value)) => json!({ "error": optional(value) }),
        value => unreachable!("no answer has the type of {value:?}"),
    }
}

/// The answer as the vectors have it: a long text by its size and digest.
pub fn abridged(value: Value) -> Value {
    const LONG: usize = 400;
    match value {
        Value::String(text) if text.len() > LONG => {
            let sha256 = Sha256Digest::of(text.as_bytes()).to_string();
            json!({ "bytes": text.len(), "sha256": sha256 })
        }
        Value::Array(items) => items.into_iter().map(abridged).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, abridged(value)))
            .collect::<Map<_, _>>()
            .into(),
        value => value,
    }
}
