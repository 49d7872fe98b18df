//! Message matching by (context, source, tag): flat at any depth, usable alone.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod adaptive;
mod btree;
mod chain;
mod config;
mod four_d;
mod handle;
mod key;
mod list;
mod matcher;
mod memory;
mod meter;
mod pool;
mod query;
mod rank_array;
mod structure;

pub use adaptive::Adaptive;
pub use btree::BTree;
pub use config::Config;
pub use four_d::FourD;
pub use handle::{Arrival, PostedId, Posting, Purged, UnexpectedId};
pub use key::{Envelope, Pattern, Source};
pub use list::LinkedList;
pub use matcher::Matcher;
pub use memory::Memory;
pub use meter::{Counting, Meter, SearchStats, Silent, Stats, Wildcards};
pub use query::{Query, Side};
pub use rank_array::RankArray;
pub use structure::{Selection, Structure};
