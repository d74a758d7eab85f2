//! The registry: generic create, read, update and delete over a cached object store, told what is special by a strategy.
//!
//! [`cache`] holds objects as final JSON bytes, [`store`] is the CRUD over it and the engine, [`strategy`] is what a kind adds.

pub mod cache;
pub mod directory;
mod encrypted;
mod errors;
pub mod factory;
mod follow;
pub(crate) mod list;
pub(crate) mod managed;
pub mod monitor;
pub mod store;
pub mod strategy;
pub mod write;

pub use cache::{Entry, ObjectCache};
pub use directory::Directory;
pub use errors::from_storage;
pub use factory::StorageFactory;
pub use follow::{Synced, follow};
pub use store::ObjectStore;
