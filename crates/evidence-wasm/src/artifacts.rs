//! Artifacts, bounded results and exact ranges.

use evidence_agent::{bound_result, error_line};
use evidence_core::{ArtifactDescriptor, ArtifactId, EvidenceLimits, range};
use evidence_store::ArtifactStore;
use js_sys::{Array, Object, Reflect, Uint8Array};
use wasm_bindgen::prelude::*;

use crate::argument::Argument;
use crate::error::{Failure, Result};
use crate::store::AnyStore;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** What identifies an artifact. */
export interface ArtifactDescriptor {
  /** "artifact-" and the digest. */
  artifactId: string;
  /** The size of the complete UTF-8 bytes. */
  byteCount: number;
  /** The digest of the complete UTF-8 bytes, in lowercase hexadecimal. */
  sha256: string;
}

/** How much of a tool result reaches the model. */
export interface EvidenceLimits {
  /** The most bytes of a result, or of the observation in its place: at least 512, the default. */
  maxInlineBytes?: number;
  /** The most bytes of each preview; 64 when left out. */
  previewBytes?: number;
  /** The most bytes of one range: at least 4; 512 when left out. */
  maxRangeBytes?: number;
}

/** A tool result as the model sees it. */
export interface BoundedResult {
  /** Whether the text is an observation in place of the result. */
  externalized: boolean;
  /** What to show the model. */
  text: string;
  /** What was stored, when it was externalized. */
  descriptor?: ArtifactDescriptor;
}

/** The answer to a range path. */
export interface RangeResult {
  /** Whether the text holds the bytes that were asked for. */
  ok: boolean;
  /** What to show the model: the range, or a refusal that begins with "error: ". */
  text: string;
}
"#;

/// The artifacts of one scope of a store, and what is done with them.
#[derive(Debug)]
#[wasm_bindgen]
pub struct Artifacts {
    store: ArtifactStore<AnyStore>,
}

impl Artifacts {
    pub(crate) const fn new(store: ArtifactStore<AnyStore>) -> Self {
        Self { store }
    }

    pub(crate) const fn store(&self) -> &ArtifactStore<AnyStore> {
        &self.store
    }
}

#[wasm_bindgen]
impl Artifacts {
    /// Stores the complete UTF-8 bytes of a text, durably. Storing the same text again changes
    /// nothing.
    #[wasm_bindgen(unchecked_return_type = "ArtifactDescriptor")]
    pub async fn put(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] text: JsValue,
    ) -> Result<JsValue> {
        let text = Argument::new("text", text).text()?;
        Ok(descriptor(&self.store.put(&text).await?))
    }

    /// What is registered under an id.
    #[wasm_bindgen(unchecked_return_type = "ArtifactDescriptor")]
    pub async fn describe(
        &self,
        #[wasm_bindgen(js_name = artifactId, unchecked_param_type = "string")] id: JsValue,
    ) -> Result<JsValue> {
        Ok(descriptor(&self.store.describe(artifact_id(id)?).await?))
    }

    /// The complete bytes, verified against their digest.
    pub async fn read(
        &self,
        #[wasm_bindgen(js_name = artifactId, unchecked_param_type = "string")] id: JsValue,
    ) -> Result<Uint8Array> {
        let (_, bytes) = self.store.read(artifact_id(id)?).await?;
        Ok(Uint8Array::from(&bytes[..]))
    }

    /// The ids of all artifacts.
    #[wasm_bindgen(unchecked_return_type = "string[]")]
    pub async fn list(&self) -> Result<Array> {
        let ids = self.store.list().await?;
        Ok(ids.iter().map(|id| JsValue::from(id.to_string())).collect())
    }

    /// Forgets an artifact. One that is not there is no error.
    pub async fn delete(
        &self,
        #[wasm_bindgen(js_name = artifactId, unchecked_param_type = "string")] id: JsValue,
    ) -> Result<()> {
        Ok(self.store.delete(artifact_id(id)?).await?)
    }

    /// Forgets all artifacts of this scope.
    #[wasm_bindgen(js_name = deleteAll)]
    pub async fn delete_all(&self) -> Result<()> {
        Ok(self.store.delete_all().await?)
    }

    /// Bounds a successful tool result: a small one is passed on as it is, a large one is stored and
    /// replaced by an observation that says how to read ranges of it.
    #[wasm_bindgen(unchecked_return_type = "BoundedResult")]
    pub async fn bound(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] text: JsValue,
        #[wasm_bindgen(unchecked_optional_param_type = "EvidenceLimits")] limits: JsValue,
    ) -> Result<JsValue> {
        let text = Argument::new("text", text).text()?;
        let limits = evidence_limits(Argument::new("limits", limits))?;
        let bounded = bound_result(text, &self.store, &limits).await?;
        let mut fields = vec![
            ("externalized", bounded.artifact.is_some().into()),
            ("text", bounded.text.into()),
        ];
        if let Some(artifact) = &bounded.artifact {
            fields.push(("descriptor", descriptor(artifact)));
        }
        Ok(object(fields))
    }

    /// Answers a path that begins with `.tool-artifacts/`, which the model gave to `read_file`. A
    /// refusal is an answer too: the model reads it and goes on.
    #[wasm_bindgen(js_name = readRange, unchecked_return_type = "RangeResult")]
    pub async fn read_range(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] path: JsValue,
        #[wasm_bindgen(unchecked_optional_param_type = "EvidenceLimits")] limits: JsValue,
    ) -> Result<JsValue> {
        let path = Argument::new("path", path).text()?;
        let limits = evidence_limits(Argument::new("limits", limits))?;
        let answer = self.store.read_range(&path, limits.max_range_bytes()).await;
        let ok = answer.is_ok();
        let text = answer.unwrap_or_else(|refusal| error_line(&refusal));
        Ok(object([("ok", ok.into()), ("text", text.into())]))
    }
}

/// Whether a path is answered by `readRange`, and never by a workspace.
#[wasm_bindgen(js_name = isArtifactPath)]
pub fn is_artifact_path(
    #[wasm_bindgen(unchecked_param_type = "string")] path: JsValue,
) -> Result<bool> {
    Ok(range::is_artifact_path(
        &Argument::new("path", path).text()?,
    ))
}

/// The limits, or the contract's own when they are left out.
pub fn evidence_limits(limits: Argument) -> Result<EvidenceLimits> {
    let default = EvidenceLimits::default();
    let Some(limits) = limits.optional() else {
        return Ok(default);
    };
    EvidenceLimits::new(
        limits.integer_or("maxInlineBytes", default.max_inline_bytes())?,
        limits.integer_or("previewBytes", default.preview_bytes())?,
        limits.integer_or("maxRangeBytes", default.max_range_bytes())?,
    )
    .map_err(|error| Failure::invalid(format!("limits: {error}")))
}

fn artifact_id(id: JsValue) -> Result<ArtifactId> {
    Argument::new("artifactId", id).parsed()
}

fn descriptor(descriptor: &ArtifactDescriptor) -> JsValue {
    #[expect(
        clippy::cast_precision_loss,
        reason = "memory holds fewer than 2^53 bytes"
    )]
    let byte_count = descriptor.byte_count as f64;
    object([
        ("artifactId", descriptor.artifact_id.to_string().into()),
        ("byteCount", byte_count.into()),
        ("sha256", descriptor.sha256.to_string().into()),
    ])
}

/// A plain object.
pub fn object(fields: impl IntoIterator<Item = (&'static str, JsValue)>) -> JsValue {
    let object = Object::new();
    for (name, value) in fields {
        // A new plain object takes every property.
        let _ = Reflect::set(&object, &name.into(), &value);
    }
    object.into()
}
