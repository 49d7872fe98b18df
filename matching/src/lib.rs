//! Message matching by (context, source, tag): flat at any depth, usable alone.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod handle;
mod key;
mod list;
mod matcher;
mod memory;
mod meter;
mod pool;
mod query;
mod structure;

pub use config::Config;
pub use handle::{Arrival, PostedId, Posting, Purged, UnexpectedId};
pub use key::{Envelope, Pattern, Source};
pub use list::LinkedList;
pub use matcher::Matcher;
pub use memory::Memory;
pub use meter::{Counting, Meter, SearchStats, Silent, Stats, Wildcards};
pub use query::{Query, Side};
pub use structure::{Selection, Structure};
