//! Reading what JavaScript hands over, which may be anything.
//!
//! An exception that is thrown through this crate's frames would leave a promise that never settles.
//! So every property is read by `Reflect`, whose exceptions are caught, and nothing is called on a
//! value before it is known to be no proxy in disguise.

use std::fmt::Display;
use std::str::FromStr;

use js_sys::{Array, ArrayBuffer, Function, JsString, Promise, Reflect, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::AbortSignal;

use crate::error::{Failure, Result};

/// The most UTF-16 code units of a string, and the most bytes of an array. Memory that runs out
/// would end the whole instance, so that it is refused long before.
const MAX_LENGTH: u32 = 64 * 1024 * 1024;

/// The most entries of a list or a record.
const MAX_ENTRIES: u32 = 100_000;

/// What [`Argument::byte_array`] takes.
const BYTE_ARRAY: &str = "a Uint8Array of at most 64 MiB that is not detached";

#[wasm_bindgen]
extern "C" {
    /// `Uint8Array`, whose constructor throws for what cannot be copied.
    #[wasm_bindgen(js_name = Uint8Array)]
    type ByteArray;
    #[wasm_bindgen(constructor, catch, js_class = "Uint8Array")]
    fn copy(bytes: &JsValue) -> Result<ByteArray, JsValue>;
}

/// A value, and what its giver calls it.
#[derive(Debug, Clone)]
pub struct Argument {
    name: String,
    value: JsValue,
}

impl Argument {
    /// The value that is given as `name`.
    pub fn new(name: &str, value: JsValue) -> Self {
        Self {
            name: name.to_owned(),
            value,
        }
    }

    /// What its giver calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Nothing, when the value is left out.
    pub fn optional(self) -> Option<Self> {
        (!self.value.is_undefined()).then_some(self)
    }

    /// The failure of a value that is not what it must be.
    pub fn is_not(&self, what: &str) -> Failure {
        Failure::invalid(format!("{} must be {what}", self.name))
    }

    /// Whether the value is null.
    pub fn is_null(&self) -> bool {
        self.value.is_null()
    }

    /// Whether the value is a string, well formed or not.
    pub fn is_text(&self) -> bool {
        self.value.is_string()
    }

    /// A string that has exact UTF-8 bytes.
    pub fn text(&self) -> Result<String> {
        if !self.value.is_string() {
            return Err(self.is_not("a string"));
        }
        let text: &JsString = self.value.unchecked_ref();
        if text.length() > MAX_LENGTH {
            return Err(self.is_not(&format!("at most {MAX_LENGTH} UTF-16 code units long")));
        }
        if !text.is_well_formed() {
            return Err(Failure::lone_surrogate(&self.name));
        }
        Ok(String::from(text))
    }

    /// A string of the form that `T` has.
    pub fn parsed<T: FromStr<Err: Display>>(&self) -> Result<T> {
        self.text()?
            .parse()
            .map_err(|error| Failure::invalid(format!("{}: {error}", self.name)))
    }

    /// A string, encoded, or the bytes of a `Uint8Array`.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        if self.is_text() {
            return Ok(self.text()?.into_bytes());
        }
        self.byte_array()
            .map_err(|_| self.is_not(&format!("a string or {BYTE_ARRAY}")))
    }

    /// The bytes of a `Uint8Array`.
    pub fn byte_array(&self) -> Result<Vec<u8>> {
        // A proxy is no view.
        let is_bytes =
            ArrayBuffer::is_view(&self.value) && self.value.is_instance_of::<Uint8Array>();
        // What a view says of itself need not be so: another type may be in disguise, its properties
        // may be hidden by others, its buffer may be detached. A copy of it is what it is.
        let copy = is_bytes.then(|| ByteArray::copy(&self.value).ok());
        copy.flatten()
            .map(JsCast::unchecked_into::<Uint8Array>)
            .filter(|copy| copy.length() <= MAX_LENGTH)
            .map(|copy| copy.to_vec())
            .ok_or_else(|| self.is_not(BYTE_ARRAY))
    }

    /// A number without a fraction.
    pub fn integer(&self) -> Result<i64> {
        const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;
        match self.value.as_f64() {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "just found to be an integer of less than 53 bits"
            )]
            Some(number) if number.fract() == 0.0 && number.abs() <= MAX_SAFE_INTEGER => {
                Ok(number as i64)
            }
            _ => Err(self.is_not("an integer")),
        }
    }

    /// An integer that is a size.
    pub fn size(&self) -> Result<usize> {
        usize::try_from(self.integer()?)
            .ok()
            .filter(|size| *size > 0)
            .ok_or_else(|| self.is_not("a positive integer"))
    }

    /// `true` or `false`.
    pub fn boolean(&self) -> Result<bool> {
        self.value
            .as_bool()
            .ok_or_else(|| self.is_not("true or false"))
    }

    /// A function.
    pub fn function(&self) -> Result<Function> {
        if self.value.is_function() {
            Ok(self.value.clone().unchecked_into())
        } else {
            Err(self.is_not("a function"))
        }
    }

    /// An `AbortSignal`.
    pub fn abort_signal(&self) -> Result<AbortSignal> {
        // A proxy of one is an instance too, and answers no property.
        match self.field("aborted") {
            Ok(aborted)
                if aborted.boolean().is_ok() && self.value.is_instance_of::<AbortSignal>() =>
            {
                Ok(self.value.clone().unchecked_into())
            }
            _ => Err(self.is_not("an AbortSignal")),
        }
    }

    /// The value itself, when it is an object.
    fn object(&self) -> Result<&JsValue> {
        if self.value.is_object() {
            Ok(&self.value)
        } else {
            Err(self.is_not("an object"))
        }
    }

    /// The value as it is.
    pub const fn value(&self) -> &JsValue {
        &self.value
    }

    /// The sentence that something thrown says.
    pub fn message(&self) -> String {
        let message = match self.field("message") {
            Ok(message) if message.is_text() => message.text(),
            _ => self.text(),
        };
        message.unwrap_or_else(|_| "it threw something without a message".to_owned())
    }

    /// A property of an object.
    pub fn field(&self, name: &str) -> Result<Self> {
        self.property(&name.into(), name)
    }

    fn property(&self, key: &JsValue, name: &str) -> Result<Self> {
        let value = Reflect::get(self.object()?, key)
            .map_err(|_| Failure::invalid(format!("{}.{name} cannot be read", self.name)))?;
        Ok(Self {
            name: format!("{}.{name}", self.name),
            value,
        })
    }

    /// The iterator of something that can be iterated over, asynchronously or not.
    #[cfg(feature = "processes")]
    pub fn iterator(&self) -> Result<Self> {
        let asynchronous =
            self.property(&js_sys::Symbol::async_iterator(), "[Symbol.asyncIterator]")?;
        let function = match asynchronous.function() {
            Ok(function) => function,
            Err(_) => self
                .property(&js_sys::Symbol::iterator(), "[Symbol.iterator]")?
                .function()
                .map_err(|_| self.is_not("an async iterable"))?,
        };
        let value = function
            .call0(&self.value)
            .map_err(|exception| Failure::invalid(Self::new(&self.name, exception).message()))?;
        Ok(Self::new(&format!("the iterator of {}", self.name), value))
    }

    /// A process's exit code; none for null.
    pub fn exit_code(&self) -> Result<Option<i32>> {
        if self.is_null() {
            return Ok(None);
        }
        let code = i32::try_from(self.integer()?);
        code.map(Some).map_err(|_| self.is_not("a 32-bit integer"))
    }

    /// The items of an array.
    pub fn list(&self) -> Result<Vec<Self>> {
        self.list_of(MAX_ENTRIES)?.collect()
    }

    /// The items of an array of at most `max_length`, one by one.
    pub fn list_of(&self, max_length: u32) -> Result<impl Iterator<Item = Result<Self>>> {
        if !self.value.is_instance_of::<Array>() {
            return Err(self.is_not("an array"));
        }
        let length = self.field("length")?.integer()?;
        if length > i64::from(max_length) {
            return Err(self.is_not(&format!("at most {max_length} items long")));
        }
        Ok((0..length).map(|index| self.field(&index.to_string())))
    }

    /// The properties of an object, by their names.
    pub fn record(&self) -> Result<Vec<(String, Self)>> {
        let keys = Reflect::own_keys(self.object()?)
            .map_err(|_| Failure::invalid(format!("{} cannot be read", self.name)))?;
        if keys.length() > MAX_ENTRIES {
            return Err(self.is_not(&format!("an object of at most {MAX_ENTRIES} properties")));
        }
        keys.iter()
            .filter(JsValue::is_string)
            .map(|key| {
                let name = Self::new(&format!("a name in {}", self.name), key.clone()).text()?;
                let value = self.property(&key, &name)?;
                Ok((name, value))
            })
            .collect()
    }

    /// An integer property, or its default.
    pub fn integer_or(&self, name: &str, default: usize) -> Result<i64> {
        match self.field(name)?.optional() {
            Some(number) => number.integer(),
            None => Ok(i64::try_from(default).unwrap_or(i64::MAX)),
        }
    }

    /// A size property, or its default.
    pub fn size_or(&self, name: &str, default: usize) -> Result<usize> {
        match self.field(name)?.optional() {
            Some(size) => size.size(),
            None => Ok(default),
        }
    }
}

/// Calls a function of the host and waits for what it answers, or throws.
pub async fn call(
    function: &Function,
    this: &JsValue,
    arguments: &[JsValue],
) -> Result<JsValue, JsValue> {
    let arguments: Array = arguments.iter().collect();
    let answer = function.apply(this, &arguments)?;
    // Only the promise's own resolving catches what a hostile thenable throws.
    let settled = Promise::new(&mut |resolve, _| {
        let _ = resolve.call1(&JsValue::UNDEFINED, &answer);
    });
    JsFuture::from(settled).await
}
