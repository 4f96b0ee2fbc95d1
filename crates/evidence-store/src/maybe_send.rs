//! `Send` and `Sync` where there are threads, nothing where there are none.
//!
//! A server moves futures between threads; a browser's objects never leave theirs. One trait serves
//! both because these two markers mean what each target needs.

#[cfg(not(target_arch = "wasm32"))]
mod bounds {
    /// `Send` on targets with threads, and no bound on WebAssembly.
    pub trait MaybeSend: Send {}
    impl<T: Send + ?Sized> MaybeSend for T {}
    /// `Sync` on targets with threads, and no bound on WebAssembly.
    pub trait MaybeSync: Sync {}
    impl<T: Sync + ?Sized> MaybeSync for T {}
}

#[cfg(target_arch = "wasm32")]
mod bounds {
    /// `Send` on targets with threads, and no bound on WebAssembly.
    pub trait MaybeSend {}
    impl<T: ?Sized> MaybeSend for T {}
    /// `Sync` on targets with threads, and no bound on WebAssembly.
    pub trait MaybeSync {}
    impl<T: ?Sized> MaybeSync for T {}
}

pub use bounds::{MaybeSend, MaybeSync};
