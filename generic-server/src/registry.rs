//! The registry: generic create, read, update and delete over a cached object store; a strategy says what is special about a kind.
//!
//! [`cache`] holds objects as final JSON bytes, [`store`] is the CRUD over it and the engine, [`strategy`] is what a kind adds.

mod budget;
pub mod cache;
pub mod config;
mod encrypted;
mod errors;
pub mod factory;
pub(crate) mod figures;
mod follow;
pub(crate) mod forms;
pub(crate) mod list;
mod reflector;
mod seeds;
pub mod store;
pub mod strategy;
mod view;

pub use budget::Budget;
pub use cache::{Entry, ObjectCache};
pub use errors::from_storage;
pub use factory::StorageFactory;
pub use figures::StoreFigures;
pub use follow::{Synced, follow};
pub use reflector::{Event, Reflector};
pub use seeds::Seeds;
pub use store::ObjectStore;
pub use view::View;
