//! Contract A.

use std::fmt::Display;

use evidence_agent::{ToolError, bound_result, error_line};
use evidence_core::{ArtifactDescriptor, ArtifactId, EvidenceLimits, range};
use evidence_store::{ArtifactError, ArtifactStore, StoreError};

use crate::bindings::exports::bounded_evidence::evidence::artifacts::{
    Code, Descriptor, Error, Guest, Limits, Observation, RangeAnswer,
};
use crate::blobs::HostBlobs;
use crate::{Component, now};

impl Error {
    fn new(code: Code, message: impl Display) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }

    /// An argument is not of the form that it must have.
    fn invalid(reason: impl Display) -> Self {
        Self::new(Code::InvalidArgument, reason)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Exhausted => Code::StorageExhausted,
            StoreError::Conflict => Code::StorageConflict,
            StoreError::Unavailable { .. } => Code::StorageUnavailable,
            StoreError::Damaged { .. } => Code::StorageDamaged,
        };
        Self::new(code, error)
    }
}

impl From<ArtifactError> for Error {
    fn from(error: ArtifactError) -> Self {
        let code = match error {
            ArtifactError::Store(error) => return error.into(),
            ArtifactError::Conflict => Code::ArtifactConflict,
            ArtifactError::Unknown => Code::ArtifactUnknown,
            ArtifactError::Unreadable => Code::ArtifactUnreadable,
            ArtifactError::DigestMismatch => Code::DigestMismatch,
        };
        Self::new(code, error)
    }
}

impl From<ArtifactDescriptor> for Descriptor {
    fn from(descriptor: ArtifactDescriptor) -> Self {
        Self {
            artifact_id: descriptor.artifact_id.to_string(),
            byte_count: descriptor.byte_count,
            sha256: descriptor.sha256.to_string(),
        }
    }
}

impl From<EvidenceLimits> for Limits {
    fn from(limits: EvidenceLimits) -> Self {
        // A limit that was accepted came from a signed number.
        let signed = |limit| i64::try_from(limit).unwrap_or(i64::MAX);
        Self {
            max_inline_bytes: signed(limits.max_inline_bytes()),
            preview_bytes: signed(limits.preview_bytes()),
            max_range_bytes: signed(limits.max_range_bytes()),
        }
    }
}

/// The limits, or the contract's own where none are given.
fn limits(limits: Option<Limits>) -> Result<EvidenceLimits, Error> {
    let Some(limits) = limits else {
        return Ok(EvidenceLimits::default());
    };
    EvidenceLimits::new(
        limits.max_inline_bytes,
        limits.preview_bytes,
        limits.max_range_bytes,
    )
    .map_err(Error::invalid)
}

fn store(scope: &str) -> Result<ArtifactStore<HostBlobs>, Error> {
    let scope = scope.parse().map_err(Error::invalid)?;
    Ok(ArtifactStore::new(HostBlobs, scope))
}

fn artifact_id(id: &str) -> Result<ArtifactId, Error> {
    id.parse().map_err(Error::invalid)
}

impl Guest for Component {
    fn default_limits() -> Limits {
        EvidenceLimits::default().into()
    }

    fn check_limits(given: Limits) -> Result<(), Error> {
        limits(Some(given)).map(drop)
    }

    fn is_artifact_path(path: String) -> bool {
        range::is_artifact_path(&path)
    }

    fn bound(
        scope: String,
        text: String,
        given: Option<Limits>,
    ) -> Result<Option<Observation>, Error> {
        let (store, limits) = (store(&scope)?, limits(given)?);
        let bounded = now(bound_result(text, &store, &limits)).map_err(|error| match error {
            ToolError::Storage(error) => error.into(),
            // The one refusal of bounding.
            error => Error::new(Code::ObservationTooLarge, error),
        })?;
        Ok(bounded.artifact.map(|artifact| Observation {
            text: bounded.text,
            artifact: artifact.into(),
        }))
    }

    fn read_range(
        scope: String,
        path: String,
        given: Option<Limits>,
    ) -> Result<RangeAnswer, Error> {
        let (store, limits) = (store(&scope)?, limits(given)?);
        let answer = now(store.read_range(&path, limits.max_range_bytes()));
        Ok(RangeAnswer {
            ok: answer.is_ok(),
            text: answer.unwrap_or_else(|refusal| error_line(&refusal)),
        })
    }

    fn put(scope: String, text: String) -> Result<Descriptor, Error> {
        Ok(now(store(&scope)?.put(&text))?.into())
    }

    fn describe(scope: String, id: String) -> Result<Descriptor, Error> {
        Ok(now(store(&scope)?.describe(artifact_id(&id)?))?.into())
    }

    fn read(scope: String, id: String) -> Result<Vec<u8>, Error> {
        let (_, bytes) = now(store(&scope)?.read(artifact_id(&id)?))?;
        Ok(bytes.into())
    }

    fn list(scope: String) -> Result<Vec<String>, Error> {
        let ids = now(store(&scope)?.list())?;
        Ok(ids.iter().map(ArtifactId::to_string).collect())
    }

    fn delete(scope: String, id: String) -> Result<(), Error> {
        Ok(now(store(&scope)?.delete(artifact_id(&id)?))?)
    }

    fn delete_all(scope: String) -> Result<(), Error> {
        Ok(now(store(&scope)?.delete_all())?)
    }
}
