//! Digests by the fastest means of the host.

use evidence_core::chunk::ChunkManifest;
#[cfg(not(target_arch = "wasm32"))]
use evidence_core::{Sha256Digest, chunk::CHUNK_BYTES};

/// The manifest of `bytes`.
///
/// The whole and its pieces are digested on two threads where that is worth one: SHA-256 is most of
/// the work of storing.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) async fn manifest_of(bytes: &[u8]) -> ChunkManifest {
    const WORTH_A_THREAD: usize = 4 * CHUNK_BYTES;
    if bytes.len() < WORTH_A_THREAD {
        return ChunkManifest::of(bytes);
    }
    std::thread::scope(|scope| {
        let whole = std::thread::Builder::new().spawn_scoped(scope, || Sha256Digest::of(bytes));
        let chunks = ChunkManifest::cut(bytes).map(Sha256Digest::of).collect();
        ChunkManifest {
            // A host that has no thread left has this one.
            sha256: whole
                .ok()
                .and_then(|whole| whole.join().ok())
                .unwrap_or_else(|| Sha256Digest::of(bytes)),
            byte_count: bytes.len() as u64,
            chunks,
        }
    })
}

/// The manifest of `bytes`. WebCrypto's SHA-256 is several times as fast as one in WebAssembly, which
/// has no instructions for it.
#[cfg(all(target_arch = "wasm32", feature = "browser"))]
pub(crate) async fn manifest_of(bytes: &[u8]) -> ChunkManifest {
    match web_crypto::manifest_of(bytes).await {
        Some(manifest) => manifest,
        None => ChunkManifest::of(bytes),
    }
}

/// The manifest of `bytes`, by the only means that any host of WebAssembly has.
#[cfg(all(target_arch = "wasm32", not(feature = "browser")))]
pub(crate) async fn manifest_of(bytes: &[u8]) -> ChunkManifest {
    ChunkManifest::of(bytes)
}

#[cfg(all(target_arch = "wasm32", feature = "browser"))]
mod web_crypto {
    use evidence_core::Sha256Digest;
    use evidence_core::chunk::{CHUNK_BYTES, ChunkManifest};
    use js_sys::{Promise, Reflect, Uint8Array};
    use wasm_bindgen::JsCast as _;
    use wasm_bindgen_futures::JsFuture;
    use web_sys::SubtleCrypto;

    /// None when it is not worth while, and where there is no WebCrypto: only pages that came over
    /// a secure connection or from this machine have it.
    pub(super) async fn manifest_of(bytes: &[u8]) -> Option<ChunkManifest> {
        // A small digest takes less than a promise.
        if bytes.len() <= CHUNK_BYTES {
            return None;
        }
        let subtle = subtle()?;
        let begin = |bytes| subtle.digest_with_str_and_u8_array("SHA-256", bytes).ok();
        // All begin before the first is awaited: they run beside each other on other threads.
        let whole = begin(bytes)?;
        let chunks: Vec<Promise> = ChunkManifest::cut(bytes)
            .map(begin)
            .collect::<Option<_>>()?;
        let mut digests = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            digests.push(digest(chunk).await?);
        }
        Some(ChunkManifest {
            sha256: digest(whole).await?,
            byte_count: bytes.len() as u64,
            chunks: digests,
        })
    }

    async fn digest(begun: Promise) -> Option<Sha256Digest> {
        let digest = JsFuture::from(begun).await.ok()?;
        let bytes = Uint8Array::new(&digest).to_vec();
        Some(Sha256Digest::from_bytes(bytes.try_into().ok()?))
    }

    fn subtle() -> Option<SubtleCrypto> {
        let crypto = Reflect::get(&js_sys::global(), &"crypto".into()).ok()?;
        let subtle = Reflect::get(&crypto, &"subtle".into()).ok()?;
        subtle.dyn_into().ok()
    }
}

#[cfg(all(test, target_arch = "wasm32", feature = "browser"))]
mod tests {
    use evidence_core::chunk::CHUNK_BYTES;
    use wasm_bindgen_test::wasm_bindgen_test;

    use super::*;

    #[wasm_bindgen_test]
    async fn web_crypto_and_the_rules_agree() {
        for length in [CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES - 1] {
            let bytes = vec![7; length];
            let manifest = web_crypto::manifest_of(&bytes).await;
            assert_eq!(manifest, Some(ChunkManifest::of(&bytes)));
        }
        assert_eq!(web_crypto::manifest_of(b"small").await, None);
        assert_eq!(manifest_of(b"small").await, ChunkManifest::of(b"small"));
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests {
    use super::*;

    #[test]
    fn two_threads_and_one_agree() {
        for length in [0, 4 * CHUNK_BYTES - 1, 4 * CHUNK_BYTES, 9 * CHUNK_BYTES + 1] {
            let bytes = vec![7; length];
            let manifest = futures_executor::block_on(manifest_of(&bytes));
            assert_eq!(manifest, ChunkManifest::of(&bytes));
        }
    }
}
